output "entry_url" {
  description = "The public address."
  value       = var.edge == null ? local.urls.entry : "https://${var.edge.domain}"
}

output "edge_address" {
  description = "What the domain's A record must say; null without var.edge."
  value       = var.edge == null ? null : google_compute_global_address.edge["main"].address
}

output "urls" {
  description = "Where each function answers."
  value       = local.urls
}

output "curl" {
  description = "A ready request for nine pictures; with auth_mode relay the CloudBase function signs it (docs/operations.md)."
  value       = <<-EOT
    curl -sS -X POST ${var.edge == null ? local.urls.entry : "https://${var.edge.domain}"}/tasks \
      -H 'Content-Type: application/json' -H "Authorization: Bearer $SESSION" -H "Idempotency-Key: $(uuidgen)" \
      -d '{"mode":"photo_set","images":["https://example.com/garment.jpg"],"params":{"scene":"商业摄影","style":"现代简约","count":9}}'
  EOT
}

output "keys_sync" {
  description = "Makes the key pool in Firestore agree with the secret; run it after the first apply and after each change of the keys."
  value       = <<-EOT
    GOOGLE_CLOUD_PROJECT=${var.project_id} \
      GEMINI_API_KEYS="$(gcloud secrets versions access latest --project ${var.project_id} --secret ${google_secret_manager_secret.main["GEMINI_API_KEYS"].secret_id})" \
      .venv/bin/python -m shared.admin keys sync
  EOT
}

output "archive" {
  description = "What is deployed; the former_archive of a later rollback."
  value       = local.archive
}

output "secrets" {
  description = "Setting → its secret in Secret Manager."
  value       = { for name, secret in google_secret_manager_secret.main : name => secret.secret_id }
}

output "tasks_service_account" {
  description = "Who calls generate and complete."
  value       = google_service_account.tasks.email
}

output "queues" {
  description = "How many dispatches each queue has in flight at most."
  value       = local.queue_concurrency
}

output "dashboard" {
  description = "Where to watch."
  value       = "https://console.cloud.google.com/monitoring/dashboards/builder/${element(split("/", google_monitoring_dashboard.main.id), 3)}?project=${var.project_id}"
}
