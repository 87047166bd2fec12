terraform {
  required_version = ">= 1.11"

  required_providers {
    google = {
      source  = "hashicorp/google"
      version = "~> 8.7"
    }
  }

  # The bucket is made by ../../bootstrap: terraform init -backend-config=bucket=<project>-lookbook-state
  backend "gcs" {
    prefix = "dev"
  }
}

provider "google" {
  project = var.project_id
  region  = var.region

  # Budgets are charged to a project's quota, not to the person's.
  user_project_override = true
  billing_project       = var.project_id
}

module "lookbook" {
  source = "../.."

  environment      = "dev"
  project_id       = var.project_id
  region           = var.region
  archive          = var.former_archive == null ? var.archive : null
  former_archive   = var.former_archive
  key_pool         = var.key_pool
  secret_values    = var.secret_values
  secret_revisions = var.secret_revisions
  auth_mode        = var.auth_mode
  wechat           = var.wechat
  cos              = var.cos
  callback         = var.callback
  source_hosts     = var.source_hosts
  edge             = var.edge
  operators        = var.operators
  alert_emails     = var.alert_emails
  budget           = var.budget

  log_level          = "DEBUG"
  keep_finished_days = 7
}
