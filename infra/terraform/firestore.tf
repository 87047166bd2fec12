resource "google_firestore_database" "main" {
  project                           = var.project_id
  name                              = "(default)"
  location_id                       = var.region
  type                              = "FIRESTORE_NATIVE"
  delete_protection_state           = "DELETE_PROTECTION_ENABLED"
  point_in_time_recovery_enablement = "POINT_IN_TIME_RECOVERY_ENABLED"
  deletion_policy                   = "ABANDON"

  depends_on = [google_project_service.main]
}

resource "google_firestore_index" "main" {
  for_each = {
    for index in local.indexes.composite :
    join(".", concat([index.collection], index.fields[*].path)) => index
  }

  project     = var.project_id
  database    = google_firestore_database.main.name
  collection  = each.value.collection
  query_scope = each.value.scope

  dynamic "fields" {
    for_each = each.value.fields
    content {
      field_path = fields.value.path
      order      = fields.value.order
    }
  }
}

# Firestore indexes every field of its own accord. Nothing here is searched by most of them, and prompts, payloads and
# clock times are what makes writes dear and hot: each collection starts with no index at all.
resource "google_firestore_field" "unindexed" {
  for_each = toset(local.indexes.collections)

  project    = var.project_id
  database   = google_firestore_database.main.name
  collection = each.key
  field      = "*"

  index_config {}
}

resource "google_firestore_field" "indexed" {
  for_each = { for index in local.indexes.single : "${index.collection}.${index.path}" => index }

  project    = var.project_id
  database   = google_firestore_database.main.name
  collection = each.value.collection
  field      = each.value.path

  index_config {
    indexes {
      query_scope  = each.value.scope
      order        = each.value.mode == "CONTAINS" ? null : each.value.mode
      array_config = each.value.mode == "CONTAINS" ? "CONTAINS" : null
    }
  }
}

resource "google_firestore_field" "ttl" {
  for_each = toset(local.indexes.ttl)

  project    = var.project_id
  database   = google_firestore_database.main.name
  collection = each.key
  field      = "expireAt"

  ttl_config {}
  index_config {}
}
