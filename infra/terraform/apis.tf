locals {
  apis = toset(concat(
    [
      "artifactregistry.googleapis.com",
      "cloudbuild.googleapis.com",
      "cloudfunctions.googleapis.com",
      "cloudresourcemanager.googleapis.com",
      "cloudscheduler.googleapis.com",
      "cloudtasks.googleapis.com",
      "firestore.googleapis.com",
      "iam.googleapis.com",
      "iamcredentials.googleapis.com",
      "logging.googleapis.com",
      "monitoring.googleapis.com",
      "run.googleapis.com",
      "secretmanager.googleapis.com",
      "storage.googleapis.com",
    ],
    var.edge == null ? [] : ["compute.googleapis.com"],
    var.budget == null ? [] : ["billingbudgets.googleapis.com"],
  ))
}

resource "google_project_service" "main" {
  for_each = local.apis

  project            = var.project_id
  service            = each.key
  disable_on_destroy = false
}
