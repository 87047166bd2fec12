# Once per project, by its owner, with local state: the bucket for the state of the environments, and Cloud Build's account
# and triggers. terraform init && terraform apply -var project_id=… -var environment=…

terraform {
  required_version = ">= 1.11"

  required_providers {
    google = {
      source  = "hashicorp/google"
      version = "~> 8.7"
    }
  }
}

provider "google" {
  project = var.project_id
  region  = var.region
}

resource "google_project_service" "main" {
  for_each = toset([
    "cloudbuild.googleapis.com",
    "cloudresourcemanager.googleapis.com",
    "iam.googleapis.com",
    "serviceusage.googleapis.com",
    "storage.googleapis.com",
  ])

  project            = var.project_id
  service            = each.key
  disable_on_destroy = false
}

resource "google_storage_bucket" "state" {
  # checkov:skip=CKV_GCP_62:who reads and writes the state is in Cloud Audit Logs; a log bucket would say it again
  project                     = var.project_id
  name                        = "${var.project_id}-lookbook-state"
  location                    = var.region
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"

  versioning {
    enabled = true
  }

  lifecycle {
    prevent_destroy = true
  }

  depends_on = [google_project_service.main]
}

resource "google_service_account" "deployer" {
  project      = var.project_id
  account_id   = "lookbook-deployer"
  display_name = "Lookbook: what Cloud Build applies as"

  depends_on = [google_project_service.main]
}

# One for each kind of thing that ../ makes. It sets IAM policies, so whoever may start its builds could get everything:
# that is what the approval in prod is for.
resource "google_project_iam_member" "deployer" {
  # checkov:skip=CKV_GCP_41:it makes accounts and lets the functions run as them
  # checkov:skip=CKV_GCP_49:it makes accounts and lets the functions run as them
  for_each = toset(concat(
    [
      "roles/artifactregistry.admin",
      "roles/cloudfunctions.admin",
      "roles/cloudscheduler.admin",
      "roles/cloudtasks.admin",
      "roles/datastore.owner",
      "roles/iam.serviceAccountAdmin",
      "roles/iam.serviceAccountUser",
      "roles/logging.configWriter",
      "roles/logging.logWriter",
      "roles/monitoring.editor",
      "roles/resourcemanager.projectIamAdmin",
      "roles/run.admin",
      "roles/secretmanager.admin",
      "roles/serviceusage.serviceUsageAdmin",
      "roles/storage.admin",
    ],
    var.edge ? ["roles/compute.loadBalancerAdmin", "roles/compute.securityAdmin"] : [],
  ))

  project = var.project_id
  role    = each.key
  member  = google_service_account.deployer.member
}

locals {
  # A push to dev is applied; a push to prod is planned, and a tag is applied once somebody has approved it.
  triggers = var.repository == null ? {} : {
    dev = {
      apply = { branch = "^main$", tag = null, approval = false }
    }
    prod = {
      plan  = { branch = "^main$", tag = null, approval = false }
      apply = { branch = null, tag = "^v[0-9].*$", approval = true }
    }
  }[var.environment]
}

resource "google_cloudbuild_trigger" "main" {
  for_each = local.triggers

  project         = var.project_id
  location        = var.region
  name            = "lookbook-${var.environment}-${each.key}"
  filename        = "cloudbuild.yaml"
  service_account = google_service_account.deployer.id

  substitutions = {
    _ENVIRONMENT  = var.environment
    _ACTION       = each.key
    _STATE_BUCKET = google_storage_bucket.state.name
  }

  repository_event_config {
    repository = var.repository

    push {
      branch = each.value.branch
      tag    = each.value.tag
    }
  }

  approval_config {
    approval_required = each.value.approval
  }
}
