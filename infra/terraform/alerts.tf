locals {
  # A garment photo that the model refuses is not our incident.
  not_ours = "CONTENT_POLICY_VIOLATION|INVALID_PROMPT|INVALID_IMAGE_FORMAT"

  # Each has a section of its name in docs/operations.md: look here, do this. `hold` is how long it must hold.
  alerts = {
    pool-empty = {
      title    = "No key is left that may draw"
      severity = "CRITICAL"
      hold     = "0s"
      query    = "sum(increase(${local.ours.pool_empty}{${local.on_run}}[5m])) > 0"
    }
    key-disabled = {
      title    = "A key was disabled"
      severity = "ERROR"
      hold     = "0s"
      query    = "sum by (key, code) (increase(${local.ours.keys_disabled}{${local.on_run}}[10m])) > 0"
    }
    oldest-task-too-old = {
      title    = "Wake-ups are dispatched more than ${var.oldest_minutes} minutes late"
      severity = "ERROR"
      hold     = "300s"
      query    = "histogram_quantile(0.99, sum by (le, queue_id) (rate(cloudtasks_googleapis_com:queue_task_attempt_delays_bucket[10m]))) > ${var.oldest_minutes * 60000}"
    }
    callback-dead-letters = {
      title    = "Callbacks do not arrive"
      severity = "ERROR"
      hold     = "300s"
      query    = "sum by (subscriber) (increase(${local.ours.deliveries_dead}{${local.on_run}}[10m])) > 0 or sum by (subscriber) (increase(${local.ours.deliveries_failed}{${local.on_run}}[10m])) > 10"
    }
    error-rate = {
      title    = "More than one shot in ten fails for reasons of ours"
      severity = "ERROR"
      hold     = "600s"
      query = join(" ", [
        "sum(increase(${local.ours.shots_failed}{${local.on_run},code!~\"${local.not_ours}\"}[15m]))",
        "/ clamp_min(sum(increase(${local.ours.shots_generated}{${local.on_run}}[15m])), 1) > 0.1",
      ])
    }
    function-errors = {
      title    = "A function answers 5xx"
      severity = "ERROR"
      hold     = "300s"
      query    = "sum by (service_name) (increase(run_googleapis_com:request_count{${local.on_run},${local.our_runs},response_code_class=\"5xx\"}[5m])) > 20"
    }
    sweep-finds-work = {
      title    = "The sweep finds lost work minute after minute"
      severity = "WARNING"
      hold     = "600s"
      query    = "sum(increase(${local.ours.sweep_found}{${local.on_run}}[5m])) >= 3"
    }
    sweep-absent = {
      title    = "The sweep does not run"
      severity = "ERROR"
      hold     = "600s"
      query    = "absent(run_googleapis_com:request_count{${local.on_run},service_name=\"${var.name}-complete\"})"
    }
  }
}

resource "google_monitoring_notification_channel" "email" {
  for_each = toset(var.alert_emails)

  project      = var.project_id
  display_name = each.key
  type         = "email"
  labels       = { email_address = each.key }

  depends_on = [google_project_service.main]
}

resource "google_monitoring_alert_policy" "main" {
  for_each = local.alerts

  project               = var.project_id
  display_name          = "Lookbook ${var.environment}: ${each.value.title}"
  combiner              = "OR"
  severity              = each.value.severity
  user_labels           = local.labels
  notification_channels = [for channel in google_monitoring_notification_channel.email : channel.id]

  conditions {
    display_name = each.value.title

    condition_prometheus_query_language {
      query               = each.value.query
      duration            = each.value.hold
      evaluation_interval = "60s"
      # The metrics of a fresh deployment have no series yet.
      disable_metric_validation = true
    }
  }

  alert_strategy {
    auto_close = "3600s"
  }

  documentation {
    subject   = "Lookbook ${var.environment}: ${each.value.title}"
    mime_type = "text/markdown"
    content   = "Runbook: docs/operations.md, section `${each.key}`."
  }

  depends_on = [google_logging_metric.counter, google_logging_metric.distribution]
}

resource "google_billing_budget" "main" {
  count = var.budget == null ? 0 : 1

  billing_account = var.budget.billing_account
  display_name    = "Lookbook ${var.environment}"

  budget_filter {
    projects = ["projects/${data.google_project.main.number}"]
  }

  amount {
    specified_amount {
      currency_code = var.budget.currency
      units         = tostring(floor(var.budget.amount))
    }
  }

  dynamic "threshold_rules" {
    for_each = [0.5, 0.9, 1]
    content {
      threshold_percent = threshold_rules.value
    }
  }

  all_updates_rule {
    monitoring_notification_channels = [for channel in google_monitoring_notification_channel.email : channel.id]
    disable_default_iam_recipients   = false
  }

  depends_on = [google_project_service.main]
}
