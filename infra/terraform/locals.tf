data "google_project" "main" {
  project_id = var.project_id
}

locals {
  labels = merge(var.labels, { app = "lookbook", environment = var.environment })

  # One source with the code: the embedded cloud reads the same files.
  queues  = jsondecode(file("${path.module}/../queues.json"))
  indexes = jsondecode(file("${path.module}/indexes.json"))

  slots = sum(values(var.key_pool))
  queue_concurrency = {
    for name, queue in local.queues.queues :
    name => ceil(local.slots * queue.max_concurrent.per_slot) + queue.max_concurrent.plus
  }

  # Known before the functions exist, so that they can be told their own and each other's: docs/decisions/0020-addresses-before-the-functions.md.
  urls = {
    for name in ["entry", "generate", "complete"] :
    name => "https://${var.name}-${name}-${data.google_project.main.number}.${var.region}.run.app"
  }

  archive = coalesce(
    var.former_archive,
    var.archive == null ? null : "lookbook-${substr(filesha256(var.archive), 0, 16)}.zip",
  )

  wechat_appid = var.wechat == null ? "" : var.wechat.appid
  wechat_env   = var.wechat == null ? "" : var.wechat.env
}
