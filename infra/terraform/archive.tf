resource "google_storage_bucket" "archives" {
  # checkov:skip=CKV_GCP_62:who reads the archives is in Cloud Audit Logs; a log bucket would say it again
  project                     = var.project_id
  name                        = "${var.project_id}-${var.name}-archives"
  location                    = var.region
  labels                      = local.labels
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"

  versioning {
    enabled = true
  }

  depends_on = [google_project_service.main]
}

resource "google_storage_bucket_object" "archive" {
  count = var.former_archive == null ? 1 : 0

  bucket = google_storage_bucket.archives.name
  name   = local.archive
  source = var.archive

  # The former archives stay: a rollback deploys one of them again.
  deletion_policy = "ABANDON"
}

resource "google_artifact_registry_repository" "images" {
  # checkov:skip=CKV_GCP_84:the images hold our code and public packages, no secret; Google's own keys are enough
  project       = var.project_id
  location      = var.region
  repository_id = var.name
  description   = "What the buildpack makes of the archives."
  format        = "DOCKER"
  labels        = local.labels

  cleanup_policies {
    id     = "keep-the-latest"
    action = "KEEP"

    most_recent_versions {
      keep_count = 10
    }
  }

  cleanup_policies {
    id     = "delete-the-old"
    action = "DELETE"

    condition {
      older_than = "2592000s"
    }
  }

  depends_on = [google_project_service.main]
}
