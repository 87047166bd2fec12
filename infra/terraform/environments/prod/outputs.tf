output "lookbook" {
  description = "Addresses, the key pool's command, what is deployed, where to watch."
  value       = { for name, value in module.lookbook : name => value if !contains(["curl", "keys_sync", "archive"], name) }
}

output "archive" {
  description = "What is deployed; the former_archive of a later rollback."
  value       = module.lookbook.archive
}

output "curl" {
  description = "A ready request."
  value       = module.lookbook.curl
}

output "keys_sync" {
  description = "Run after the first apply and after each change of the keys."
  value       = module.lookbook.keys_sync
}
