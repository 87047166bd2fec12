resource "google_cloud_tasks_queue" "main" {
  for_each = local.queues.queues

  project  = var.project_id
  location = var.region
  name     = each.key

  rate_limits {
    max_concurrent_dispatches = local.queue_concurrency[each.key]
    max_dispatches_per_second = each.value.max_per_second
  }

  retry_config {
    max_attempts  = each.value.retry.max_attempts
    min_backoff   = "${each.value.retry.min_backoff_seconds}s"
    max_backoff   = "${each.value.retry.max_backoff_seconds}s"
    max_doublings = each.value.retry.max_doublings
  }

  # IAM wants a token whose audience is the very service that is called. A queue calls one function, so the queue says
  # which, whatever the task says.
  http_target {
    http_method = "POST"

    oidc_token {
      service_account_email = google_service_account.tasks.email
      audience              = local.urls[each.value.function]
    }
  }

  stackdriver_logging_config {
    sampling_ratio = var.environment == "prod" ? 0.01 : 1
  }

  depends_on = [google_project_service.main]
}

# What was written and not enqueued, or enqueued and lost, is found here once a minute.
resource "google_cloud_scheduler_job" "sweep" {
  project          = var.project_id
  region           = var.region
  name             = "${var.name}-sweep"
  description      = "Wakes what nobody looks after any more."
  schedule         = "* * * * *"
  time_zone        = "Etc/UTC"
  attempt_deadline = "${var.timing.complete}s"

  # The next minute is the retry.
  retry_config {
    retry_count = 0
  }

  http_target {
    http_method = "POST"
    uri         = "${local.urls.complete}/sweep"

    oidc_token {
      service_account_email = google_service_account.tasks.email
      audience              = local.urls.complete
    }
  }

  depends_on = [google_cloud_run_v2_service_iam_member.tasks]
}
