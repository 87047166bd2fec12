locals {
  # Metric → the word of our log lines it counts, and the fields that tell its series apart. A test finds each in the code.
  counters = {
    callers_refused      = { word = "caller.refused", labels = [] }
    crashes              = { word = "request.crashed", labels = [] }
    deliveries_failed    = { word = "delivery.failed", labels = ["subscriber"] }
    deliveries_dead      = { word = "delivery.dead", labels = ["subscriber"] }
    director_unavailable = { word = "director.unavailable", labels = ["code"] }
    keys_cooling         = { word = "key.cooling", labels = ["code", "domain"] }
    keys_disabled        = { word = "key.disabled", labels = ["code", "key"] }
    not_enqueued         = { word = "task.not_all_enqueued", labels = [] }
    pool_empty           = { word = "pool.empty", labels = [] }
    pool_unreadable      = { word = "pool.unreadable", labels = [] }
    preparations_failed  = { word = "task.preparation_failed", labels = ["code"] }
    shots_cached         = { word = "shot.from_cache", labels = [] }
    shots_failed         = { word = "shot.failed", labels = ["code"] }
    shots_generated      = { word = "shot.generated", labels = ["key"] }
    shots_retried        = { word = "shot.retry", labels = ["code"] }
    sources_unreadable   = { word = "sources.unreadable", labels = ["code"] }
    store_unavailable    = { word = "store.unavailable", labels = [] }
    sweep_found          = { word = "sweep.found", labels = [] }
    tasks_cancelled      = { word = "task.cancelled", labels = [] }
    tasks_created        = { word = "task.created", labels = ["mode"] }
    tasks_not_prepared   = { word = "task.not_prepared", labels = ["code"] }
    tasks_finished       = { word = "task.finished", labels = ["status"] }
    uploads_retried      = { word = "upload.retry", labels = ["code"] }
  }

  # Metric → word, the field that is measured, and its unit.
  distributions = {
    drawing_ms    = { word = "shot.generated", field = "drawing_ms", unit = "ms" }
    picture_bytes = { word = "shot.generated", field = "bytes", unit = "By" }
    queue_wait_ms = { word = "task.finished", field = "metrics.queueWaitTime", unit = "ms" }
    storing_ms    = { word = "shot.generated", field = "storing_ms", unit = "ms" }
    total_ms      = { word = "task.finished", field = "metrics.totalTime", unit = "ms" }
  }

  our_lines = join(" AND ", [
    "resource.type=\"cloud_run_revision\"",
    "resource.labels.service_name=(${join(" OR ", [for name in local.function_names : "\"${var.name}-${name}\""])})",
  ])
}

resource "google_logging_metric" "counter" {
  for_each = local.counters

  project     = var.project_id
  name        = "lookbook/${each.key}"
  description = "Log lines saying ${each.value.word}."
  filter      = "${local.our_lines} AND jsonPayload.message=\"${each.value.word}\""

  metric_descriptor {
    metric_kind = "DELTA"
    value_type  = "INT64"
    unit        = "1"

    dynamic "labels" {
      for_each = each.value.labels
      content {
        key        = labels.value
        value_type = "STRING"
      }
    }
  }

  label_extractors = { for label in each.value.labels : label => "EXTRACT(jsonPayload.${label})" }

  depends_on = [google_project_service.main]
}

resource "google_logging_metric" "distribution" {
  for_each = local.distributions

  project         = var.project_id
  name            = "lookbook/${each.key}"
  description     = "${each.value.field} of log lines saying ${each.value.word}."
  filter          = "${local.our_lines} AND jsonPayload.message=\"${each.value.word}\" AND jsonPayload.${each.value.field}>=0"
  value_extractor = "EXTRACT(jsonPayload.${each.value.field})"

  metric_descriptor {
    metric_kind = "DELTA"
    value_type  = "DISTRIBUTION"
    unit        = each.value.unit
  }

  # 100 to about 50 million, each bucket a quarter wider than the one before.
  bucket_options {
    exponential_buckets {
      num_finite_buckets = 60
      growth_factor      = 1.25
      scale              = 100
    }
  }

  depends_on = [google_project_service.main]
}
