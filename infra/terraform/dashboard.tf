locals {
  # PromQL's names for our metrics. A log-based metric may hang on several kinds of resource: ours hang on one.
  ours = {
    for name in concat(keys(local.counters), keys(local.distributions)) :
    name => "logging_googleapis_com:user_lookbook_${name}"
  }
  on_run   = "monitored_resource=\"cloud_run_revision\""
  our_runs = "service_name=~\"${var.name}-(entry|generate|complete)\""

  percentiles = {
    for name in keys(local.distributions) : name => [
      for percent in [50, 95, 99] : {
        legend = "p${percent}"
        query  = "histogram_quantile(${percent / 100}, sum by (le) (rate(${local.ours[name]}_bucket{${local.on_run}}[5m])))"
      }
    ]
  }

  # Slots that are busy on average = seconds of drawing per second.
  slots_busy = "sum(rate(${local.ours.drawing_ms}_sum{${local.on_run}}[5m])) / 1000"

  charts = [
    {
      title = "Queue depth"
      lines = [{ legend = "$${labels.queue_id}", query = "sum by (queue_id) (cloudtasks_googleapis_com:queue_depth)" }]
    },
    {
      title = "Age: how late wake-ups are dispatched, p99 (ms)"
      lines = [{
        legend = "$${labels.queue_id}"
        query  = "histogram_quantile(0.99, sum by (le, queue_id) (rate(cloudtasks_googleapis_com:queue_task_attempt_delays_bucket[5m])))"
      }]
    },
    {
      title = "Slot utilisation (1 = all ${local.slots} slots busy)"
      lines = [{ legend = "busy", query = "${local.slots_busy} / ${local.slots}" }]
    },
    {
      title = "Pool size: keys that drew in the last hour, of ${length(var.key_pool)}"
      lines = [
        { legend = "at work", query = "count(sum by (key) (increase(${local.ours.shots_generated}{${local.on_run}}[1h])) > 0)" },
        { legend = "in the pool", query = "vector(${length(var.key_pool)})" },
      ]
    },
    {
      title = "429 and other coolings of quota domains"
      lines = [{ legend = "$${labels.domain} $${labels.code}", query = "sum by (domain, code) (increase(${local.ours.keys_cooling}{${local.on_run}}[5m]))" }]
    },
    {
      title = "Errors by code: retried and failed shots"
      lines = [
        { legend = "retried $${labels.code}", query = "sum by (code) (increase(${local.ours.shots_retried}{${local.on_run}}[5m]))" },
        { legend = "failed $${labels.code}", query = "sum by (code) (increase(${local.ours.shots_failed}{${local.on_run}}[5m]))" },
        { legend = "not prepared $${labels.code}", query = "sum by (code) (increase(${local.ours.tasks_not_prepared}{${local.on_run}}[5m]))" },
        { legend = "upload again $${labels.code}", query = "sum by (code) (increase(${local.ours.uploads_retried}{${local.on_run}}[5m]))" },
      ]
    },
    { title = "Drawing a shot (ms)", lines = local.percentiles.drawing_ms },
    { title = "Storing a picture (ms)", lines = local.percentiles.storing_ms },
    { title = "A task waits for its first shot (ms)", lines = local.percentiles.queue_wait_ms },
    { title = "A task from request to last picture (ms)", lines = local.percentiles.total_ms },
    {
      title = "Pictures per minute"
      lines = [
        { legend = "drawn", query = "sum(rate(${local.ours.shots_generated}{${local.on_run}}[5m])) * 60" },
        { legend = "from the cache", query = "sum(rate(${local.ours.shots_cached}{${local.on_run}}[5m])) * 60" },
      ]
    },
    {
      title = "Cost of the model, US dollars in the last day"
      lines = [{ legend = "USD", query = "sum(increase(${local.ours.shots_generated}{${local.on_run}}[1d])) * ${var.picture_price}" }]
    },
    {
      title = "Egress of pictures, bytes in the last day"
      lines = [{ legend = "bytes", query = "sum(increase(${local.ours.picture_bytes}_sum{${local.on_run}}[1d]))" }]
    },
    {
      title = "Tasks by outcome"
      lines = [
        { legend = "created", query = "sum(increase(${local.ours.tasks_created}{${local.on_run}}[5m]))" },
        { legend = "$${labels.status}", query = "sum by (status) (increase(${local.ours.tasks_finished}{${local.on_run}}[5m]))" },
      ]
    },
    {
      title = "Callbacks that failed, and what the sweep had to look after"
      lines = [
        { legend = "$${labels.subscriber}", query = "sum by (subscriber) (increase(${local.ours.deliveries_failed}{${local.on_run}}[5m]))" },
        { legend = "sweeps that found something", query = "sum(increase(${local.ours.sweep_found}{${local.on_run}}[5m]))" },
      ]
    },
    {
      title = "Requests by function and answer, per second"
      lines = [{
        legend = "$${labels.service_name} $${labels.response_code_class}"
        query  = "sum by (service_name, response_code_class) (rate(run_googleapis_com:request_count{${local.on_run},${local.our_runs}}[5m]))"
      }]
    },
    {
      title = "Instances"
      lines = [{
        legend = "$${labels.service_name} $${labels.state}"
        query  = "sum by (service_name, state) (run_googleapis_com:container_instance_count{${local.on_run},${local.our_runs}})"
      }]
    },
  ]
}

resource "google_monitoring_dashboard" "main" {
  project = var.project_id

  dashboard_json = jsonencode({
    displayName = "Lookbook ${var.environment}"
    labels      = { app = "lookbook" }
    mosaicLayout = {
      columns = 48
      tiles = [
        for position, chart in local.charts : {
          xPos   = position % 2 * 24
          yPos   = floor(position / 2) * 16
          width  = 24
          height = 16
          widget = {
            title = chart.title
            xyChart = {
              dataSets = [
                for line in chart.lines : {
                  plotType        = "LINE"
                  targetAxis      = "Y1"
                  legendTemplate  = line.legend
                  timeSeriesQuery = { prometheusQuery = line.query }
                }
              ]
            }
          }
        }
      ]
    }
  })

  depends_on = [google_logging_metric.counter, google_logging_metric.distribution]
}
