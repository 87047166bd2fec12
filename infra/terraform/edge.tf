# Only with var.edge: a domain of your own, TLS, and a limit per address, in front of entry.
locals {
  edge = var.edge == null ? {} : { main = var.edge }
}

resource "google_compute_security_policy" "edge" {
  for_each = local.edge

  project     = var.project_id
  name        = "${var.name}-edge"
  description = "So many requests a minute from one address; the rest hear 429."

  rule {
    description = "Log4j lookups in requests (CVE-2021-44228)."
    priority    = 100
    action      = "deny(403)"

    match {
      expr {
        expression = "evaluatePreconfiguredWaf('cve-canary')"
      }
    }
  }

  rule {
    description = "The limit."
    priority    = 1000
    action      = "throttle"

    match {
      versioned_expr = "SRC_IPS_V1"
      config {
        src_ip_ranges = ["*"]
      }
    }

    rate_limit_options {
      conform_action = "allow"
      exceed_action  = "deny(429)"
      enforce_on_key = "IP"

      rate_limit_threshold {
        count        = each.value.requests_per_minute
        interval_sec = 60
      }
    }
  }

  rule {
    description = "Everybody else may."
    priority    = 2147483647
    action      = "allow"

    match {
      versioned_expr = "SRC_IPS_V1"
      config {
        src_ip_ranges = ["*"]
      }
    }
  }

  depends_on = [google_project_service.main]
}

resource "google_compute_region_network_endpoint_group" "entry" {
  for_each = local.edge

  project               = var.project_id
  region                = var.region
  name                  = "${var.name}-entry"
  network_endpoint_type = "SERVERLESS"

  cloud_run {
    service = google_cloudfunctions2_function.main["entry"].name
  }
}

resource "google_compute_backend_service" "entry" {
  for_each = local.edge

  project               = var.project_id
  name                  = "${var.name}-entry"
  protocol              = "HTTPS"
  load_balancing_scheme = "EXTERNAL_MANAGED"
  security_policy       = google_compute_security_policy.edge[each.key].id

  backend {
    group = google_compute_region_network_endpoint_group.entry[each.key].id
  }

  log_config {
    enable      = true
    sample_rate = 0.1
  }
}

resource "google_compute_url_map" "edge" {
  for_each = local.edge

  project         = var.project_id
  name            = "${var.name}-edge"
  default_service = google_compute_backend_service.entry[each.key].id
}

resource "google_compute_managed_ssl_certificate" "edge" {
  for_each = local.edge

  project = var.project_id
  name    = "${var.name}-${substr(sha256(each.value.domain), 0, 8)}"

  managed {
    domains = [each.value.domain]
  }

  # A certificate in use can't be deleted: the new domain's comes first.
  lifecycle {
    create_before_destroy = true
  }

  depends_on = [google_project_service.main]
}

resource "google_compute_ssl_policy" "edge" {
  for_each = local.edge

  project         = var.project_id
  name            = "${var.name}-edge"
  profile         = "MODERN"
  min_tls_version = "TLS_1_2"

  depends_on = [google_project_service.main]
}

resource "google_compute_target_https_proxy" "edge" {
  for_each = local.edge

  project          = var.project_id
  name             = "${var.name}-edge"
  url_map          = google_compute_url_map.edge[each.key].id
  ssl_certificates = [google_compute_managed_ssl_certificate.edge[each.key].id]
  ssl_policy       = google_compute_ssl_policy.edge[each.key].id
}

resource "google_compute_global_address" "edge" {
  for_each = local.edge

  project = var.project_id
  name    = "${var.name}-edge"

  depends_on = [google_project_service.main]
}

resource "google_compute_global_forwarding_rule" "edge" {
  for_each = local.edge

  project               = var.project_id
  name                  = "${var.name}-edge"
  load_balancing_scheme = "EXTERNAL_MANAGED"
  ip_address            = google_compute_global_address.edge[each.key].id
  port_range            = "443"
  target                = google_compute_target_https_proxy.edge[each.key].id
  labels                = local.labels
}
