terraform {
  # Write-only arguments, which keep the secrets out of the state, came with 1.11.
  required_version = ">= 1.11"

  required_providers {
    google = {
      source  = "hashicorp/google"
      version = "~> 8.7"
    }
  }
}
