output "init" {
  description = "How the environment's state is found."
  value       = "terraform init -backend-config=bucket=${google_storage_bucket.state.name}"
}

output "deployer" {
  description = "What Cloud Build applies as."
  value       = google_service_account.deployer.email
}
