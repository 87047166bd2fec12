locals {
  # Secret → the functions that read it.
  secret_readers = transpose({ for name, function in local.functions : name => function.secrets })
  secrets        = keys(local.secret_readers)
}

resource "google_secret_manager_secret" "main" {
  for_each = toset(local.secrets)

  project             = var.project_id
  secret_id           = "${var.name}-${lower(replace(each.key, "_", "-"))}"
  labels              = local.labels
  version_destroy_ttl = "604800s"

  replication {
    user_managed {
      replicas {
        location = var.region
      }
    }
  }

  depends_on = [google_project_service.main]
}

# The value goes to Secret Manager and nowhere else. It is sent when the version is made, that is at the first apply and
# when its revision is raised; at any other time `secret_values = {}` will do.
resource "google_secret_manager_secret_version" "main" {
  for_each = toset(local.secrets)

  secret                 = google_secret_manager_secret.main[each.key].id
  secret_data_wo         = lookup(var.secret_values, each.key, "not given")
  secret_data_wo_version = lookup(var.secret_revisions, each.key, 1)
  deletion_policy        = "DISABLE"

  lifecycle {
    create_before_destroy = true
  }
}

resource "google_secret_manager_secret_iam_member" "function" {
  for_each = merge([
    for secret, functions in local.secret_readers : {
      for function in functions : "${function}.${secret}" => { function = function, secret = secret }
    }
  ]...)

  project   = var.project_id
  secret_id = google_secret_manager_secret.main[each.value.secret].secret_id
  role      = "roles/secretmanager.secretAccessor"
  member    = google_service_account.function[each.value.function].member
}
