resource "google_service_account" "function" {
  for_each = local.function_names

  project      = var.project_id
  account_id   = "${var.name}-${each.key}"
  display_name = "Lookbook: the function ${each.key}"

  depends_on = [google_project_service.main]
}

locals {
  function_names = toset(["entry", "generate", "complete"])
}

resource "google_service_account" "tasks" {
  project      = var.project_id
  account_id   = "${var.name}-tasks"
  display_name = "Lookbook: what Cloud Tasks and the scheduler call in the name of"

  depends_on = [google_project_service.main]
}

resource "google_service_account" "build" {
  project      = var.project_id
  account_id   = "${var.name}-build"
  display_name = "Lookbook: builds the functions"

  depends_on = [google_project_service.main]
}

# Firestore knows no narrower grant than "read and write documents of the project".
resource "google_project_iam_member" "documents" {
  for_each = local.function_names

  project = var.project_id
  role    = "roles/datastore.user"
  member  = google_service_account.function[each.key].member
}

resource "google_cloud_tasks_queue_iam_member" "enqueuer" {
  for_each = merge([
    for name, function in local.functions : {
      for queue in function.queues : "${name}.${queue}" => { function = name, queue = queue }
    }
  ]...)

  project  = var.project_id
  location = var.region
  name     = google_cloud_tasks_queue.main[each.value.queue].name
  role     = "roles/cloudtasks.enqueuer"
  member   = google_service_account.function[each.value.function].member
}

# A task that carries a token of the tasks account can be created only by who may act as that account.
resource "google_service_account_iam_member" "act_as_tasks" {
  for_each = local.function_names

  service_account_id = google_service_account.tasks.name
  role               = "roles/iam.serviceAccountUser"
  member             = google_service_account.function[each.key].member
}

resource "google_service_account_iam_member" "operator" {
  for_each = toset(var.operators)

  service_account_id = google_service_account.tasks.name
  role               = "roles/iam.serviceAccountOpenIdTokenCreator"
  member             = each.key
}

resource "google_cloud_run_v2_service_iam_member" "tasks" {
  for_each = toset(["generate", "complete"])

  project  = var.project_id
  location = var.region
  name     = google_cloudfunctions2_function.main[each.key].name
  role     = "roles/run.invoker"
  member   = google_service_account.tasks.member
}

resource "google_cloud_run_v2_service_iam_member" "public" {
  # checkov:skip=CKV_GCP_102:entry is the public door; it checks who calls by itself (AUTH_MODE), and none is refused when deployed
  project  = var.project_id
  location = var.region
  name     = google_cloudfunctions2_function.main["entry"].name
  role     = "roles/run.invoker"
  member   = "allUsers"
}

resource "google_project_iam_member" "build" {
  for_each = toset(["roles/logging.logWriter", "roles/storage.objectViewer"])

  project = var.project_id
  role    = each.key
  member  = google_service_account.build.member
}

resource "google_artifact_registry_repository_iam_member" "build" {
  project    = var.project_id
  location   = var.region
  repository = google_artifact_registry_repository.images.name
  role       = "roles/artifactregistry.writer"
  member     = google_service_account.build.member
}
