locals {
  common_settings = {
    GOOGLE_CLOUD_PROJECT  = var.project_id
    GOOGLE_CLOUD_LOCATION = var.region
    GENERATE_URL          = local.urls.generate
    COMPLETE_URL          = local.urls.complete
    GENERATE_QUEUE        = "generate"
    GENERATE_BULK_QUEUE   = "generate-bulk"
    COMPLETE_QUEUE        = "complete"
    EVENTS_QUEUE          = "events"
    TASKS_SERVICE_ACCOUNT = google_service_account.tasks.email
    LOG_LEVEL             = var.log_level
    TASK_DEADLINE_SECONDS = tostring(var.timing.task_deadline)
    KEEP_FINISHED_DAYS    = tostring(var.keep_finished_days)
  }

  # Exactly what shared/settings.py asks for; a test loads each function's settings from here.
  functions = {
    entry = {
      description = "The public door: takes tasks and tells what became of them."
      memory      = "512Mi"
      cpu         = "1"
      # Live event streams are open for minutes; they leave room for everybody else.
      concurrency = var.limits.event_streams + 50
      max         = 20
      timeout     = var.timing.entry
      min         = var.min_instances.entry
      ingress     = var.edge == null ? "ALLOW_ALL" : "ALLOW_INTERNAL_AND_GCLB"
      queues      = ["generate", "generate-bulk", "complete"]
      secrets     = var.auth_mode == "wechat" ? ["SESSION_SECRET", "WECHAT_SECRET"] : ["RELAY_SECRET"]
      settings = {
        TASKS_AUDIENCE              = local.urls.generate
        AUTH_MODE                   = var.auth_mode
        SESSION_MINUTES             = tostring(var.session_minutes)
        WECHAT_APPID                = var.auth_mode == "wechat" ? local.wechat_appid : ""
        WECHAT_ENV                  = var.auth_mode == "wechat" ? local.wechat_env : ""
        CLOUD_FUNCTION_CALLBACK_URL = var.callback.url
        CALLBACK_HOSTS              = join(",", var.callback.hosts)
        SOURCE_HOSTS                = join(",", var.source_hosts)
        GEMINI_MODEL                = var.model.painter
        MAX_BODY_BYTES              = tostring(var.limits.body_bytes)
        USER_OPEN_TASKS             = tostring(var.limits.open_tasks)
        USER_PICTURES_PER_DAY       = tostring(var.limits.pictures_per_day)
        MAX_EVENT_STREAMS           = tostring(var.limits.event_streams)
      }
    }

    generate = {
      description = "Draws one shot per request; called by Cloud Tasks alone."
      memory      = "2Gi"
      cpu         = "2"
      # Many shots to a process: a slot is handed straight to the next shot waiting in the same one.
      concurrency = 24
      max         = ceil((local.queue_concurrency["generate"] + local.queue_concurrency["generate-bulk"]) / 24) + 1
      timeout     = var.timing.generate
      min         = var.min_instances.generate
      ingress     = var.internal_ingress ? "ALLOW_INTERNAL_ONLY" : "ALLOW_ALL"
      queues      = ["generate", "generate-bulk", "complete"]
      secrets = concat(
        ["GEMINI_API_KEYS", "TENCENT_SECRET_ID", "TENCENT_SECRET_KEY"],
        var.model.director == "" ? [] : ["OPENAI_API_KEY"],
        var.wechat == null ? [] : ["WECHAT_SECRET"],
      )
      settings = {
        TASKS_AUDIENCE         = local.urls.generate
        TENCENT_COS_BUCKET     = var.cos.bucket
        TENCENT_COS_REGION     = var.cos.region
        PICTURE_URL_DAYS       = tostring(var.cos.url_days)
        WECHAT_APPID           = local.wechat_appid
        WECHAT_ENV             = local.wechat_env
        GEMINI_MODEL           = var.model.painter
        GEMINI_TIMEOUT_SECONDS = tostring(var.timing.call)
        LEASE_SECONDS          = tostring(var.timing.lease)
        SLOT_WAIT_SECONDS      = tostring(var.timing.slot_wait)
        UPLOAD_SECONDS         = tostring(var.timing.upload)
        OPENAI_MODEL           = var.model.director
        OPENAI_TIMEOUT_SECONDS = tostring(var.model.director_timeout_seconds)
        SOURCE_HOSTS           = join(",", var.source_hosts)
        PICTURE_FORMAT         = var.picture.format
        PICTURE_QUALITY        = tostring(var.picture.quality)
        PICTURE_MAX_EDGE       = tostring(var.picture.max_edge)
      }
    }

    complete = {
      description = "Tells of events, finishes tasks, sweeps; called by Cloud Tasks and the scheduler alone."
      memory      = "512Mi"
      cpu         = "1"
      concurrency = 80
      max         = ceil((local.queue_concurrency["complete"] + local.queue_concurrency["events"]) / 80) + 1
      timeout     = var.timing.complete
      min         = var.min_instances.complete
      ingress     = var.internal_ingress ? "ALLOW_INTERNAL_ONLY" : "ALLOW_ALL"
      queues      = ["generate", "generate-bulk", "complete", "events"]
      secrets     = ["CALLBACK_SECRET"]
      settings = {
        TASKS_AUDIENCE              = local.urls.complete
        CLOUD_FUNCTION_CALLBACK_URL = var.callback.url
        CALLBACK_TIMEOUT_SECONDS    = tostring(var.callback.timeout_seconds)
      }
    }
  }
}

resource "google_cloudfunctions2_function" "main" {
  # checkov:skip=CKV_GCP_124:entry is the public door; generate and complete are closed by IAM and by their own check of
  # the token, and by ingress too with var.internal_ingress, which would keep doctor from looking at them
  for_each = local.functions

  project     = var.project_id
  location    = var.region
  name        = "${var.name}-${each.key}"
  description = each.value.description
  labels      = local.labels

  build_config {
    runtime           = "python311"
    entry_point       = each.key
    service_account   = google_service_account.build.id
    docker_repository = google_artifact_registry_repository.images.id

    source {
      storage_source {
        bucket = google_storage_bucket.archives.name
        object = var.former_archive == null ? google_storage_bucket_object.archive[0].name : var.former_archive
      }
    }

    automatic_update_policy {}
  }

  service_config {
    service_account_email            = google_service_account.function[each.key].email
    available_memory                 = each.value.memory
    available_cpu                    = each.value.cpu
    max_instance_request_concurrency = each.value.concurrency
    min_instance_count               = each.value.min
    max_instance_count               = each.value.max
    timeout_seconds                  = each.value.timeout
    ingress_settings                 = each.value.ingress
    all_traffic_on_latest_revision   = true

    # The functions take an empty setting for one that isn't there; Google refuses some empty ones.
    environment_variables = {
      for name, value in merge(local.common_settings, each.value.settings) : name => value if value != ""
    }

    dynamic "secret_environment_variables" {
      for_each = toset(each.value.secrets)
      content {
        key        = secret_environment_variables.key
        project_id = var.project_id
        secret     = google_secret_manager_secret.main[secret_environment_variables.key].secret_id
        version    = "latest"
      }
    }
  }

  # A revision starts only if its account can read its secrets and the secrets have a version.
  depends_on = [
    google_project_service.main,
    google_project_iam_member.build,
    google_artifact_registry_repository_iam_member.build,
    google_secret_manager_secret_iam_member.function,
    google_secret_manager_secret_version.main,
    google_firestore_database.main,
  ]
}

# Both run.app addresses of a service are valid; the one we told the functions of must be among them.
check "generate_has_the_address_the_others_know" {
  data "google_cloud_run_v2_service" "generate" {
    project  = var.project_id
    location = var.region
    name     = google_cloudfunctions2_function.main["generate"].name
  }

  assert {
    condition     = contains(data.google_cloud_run_v2_service.generate.urls, local.urls.generate)
    error_message = "Cloud Run has not given generate the address ${local.urls.generate}: see docs/decisions/0020-addresses-before-the-functions.md."
  }
}

check "complete_has_the_address_the_others_know" {
  data "google_cloud_run_v2_service" "complete" {
    project  = var.project_id
    location = var.region
    name     = google_cloudfunctions2_function.main["complete"].name
  }

  assert {
    condition     = contains(data.google_cloud_run_v2_service.complete.urls, local.urls.complete)
    error_message = "Cloud Run has not given complete the address ${local.urls.complete}: see docs/decisions/0020-addresses-before-the-functions.md."
  }
}
