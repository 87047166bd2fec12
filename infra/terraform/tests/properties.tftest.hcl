# What must hold of any deployment. Applied with a google provider that makes everything up: no cloud, no credentials.

mock_provider "google" {
  mock_data "google_project" {
    defaults = {
      number = "123456789012"
    }
  }

  mock_resource "google_monitoring_dashboard" {
    defaults = {
      id = "projects/123456789012/dashboards/made-up"
    }
  }
}

override_data {
  target = data.google_cloud_run_v2_service.generate
  values = {
    urls = ["https://lookbook-generate-123456789012.asia-east1.run.app", "https://lookbook-generate-abc-de.a.run.app"]
  }
}

override_data {
  target = data.google_cloud_run_v2_service.complete
  values = {
    urls = ["https://lookbook-complete-123456789012.asia-east1.run.app", "https://lookbook-complete-abc-de.a.run.app"]
  }
}

override_resource {
  target = google_service_account.tasks
  values = {
    name   = "projects/lookbook-test/serviceAccounts/lookbook-tasks@lookbook-test.iam.gserviceaccount.com"
    email  = "lookbook-tasks@lookbook-test.iam.gserviceaccount.com"
    member = "serviceAccount:lookbook-tasks@lookbook-test.iam.gserviceaccount.com"
  }
}

override_resource {
  target = google_service_account.function["entry"]
  values = {
    email  = "lookbook-entry@lookbook-test.iam.gserviceaccount.com"
    member = "serviceAccount:lookbook-entry@lookbook-test.iam.gserviceaccount.com"
  }
}

override_resource {
  target = google_service_account.function["generate"]
  values = {
    email  = "lookbook-generate@lookbook-test.iam.gserviceaccount.com"
    member = "serviceAccount:lookbook-generate@lookbook-test.iam.gserviceaccount.com"
  }
}

override_resource {
  target = google_service_account.function["complete"]
  values = {
    email  = "lookbook-complete@lookbook-test.iam.gserviceaccount.com"
    member = "serviceAccount:lookbook-complete@lookbook-test.iam.gserviceaccount.com"
  }
}

variables {
  project_id  = "lookbook-test"
  environment = "prod"
  archive     = "tests/archive.txt"
  key_pool    = { key1 = 3, key2 = 3, key3 = 3, key4 = 2 }
  cos         = { bucket = "lookbook-1250000000" }
  auth_mode   = "wechat"
  wechat      = { appid = "wx0000000000000000" }
  secret_values = {
    CALLBACK_SECRET    = "made up"
    GEMINI_API_KEYS    = "[{\"id\":\"key1\",\"key\":\"a\",\"maxConcurrent\":3},{\"id\":\"key2\",\"key\":\"b\"},{\"id\":\"key3\",\"key\":\"c\"},{\"id\":\"key4\",\"key\":\"d\",\"maxConcurrent\":2}]"
    OPENAI_API_KEY     = "made up"
    SESSION_SECRET     = "made up"
    TENCENT_SECRET_ID  = "made up"
    TENCENT_SECRET_KEY = "made up"
    WECHAT_SECRET      = "made up"
  }
}

run "deployed" {
  command = apply

  # Who may invoke what.
  assert {
    condition = {
      for name, grant in google_cloud_run_v2_service_iam_member.tasks : grant.name => grant.member
      } == {
      lookbook-generate = google_service_account.tasks.member
      lookbook-complete = google_service_account.tasks.member
    }
    error_message = "generate and complete are invoked by the tasks account, and by nobody else."
  }

  assert {
    condition     = google_cloud_run_v2_service_iam_member.public.name == "lookbook-entry"
    error_message = "Only entry is public."
  }

  assert {
    condition = alltrue([
      for grant in concat(values(google_project_iam_member.documents), values(google_project_iam_member.build)) :
      !contains(["roles/owner", "roles/editor", "roles/viewer"], grant.role) && !strcontains(grant.role, "admin")
    ])
    error_message = "No account has a basic or an administrator's role on the project."
  }

  assert {
    condition = length(distinct([
      for function in google_cloudfunctions2_function.main : function.service_config[0].service_account_email
    ])) == 3
    error_message = "Each function runs as an account of its own."
  }

  # Which secret goes where.
  assert {
    condition = toset(keys(google_secret_manager_secret_iam_member.function)) == toset([
      "complete.CALLBACK_SECRET",
      "entry.SESSION_SECRET",
      "entry.WECHAT_SECRET",
      "generate.GEMINI_API_KEYS",
      "generate.OPENAI_API_KEY",
      "generate.TENCENT_SECRET_ID",
      "generate.TENCENT_SECRET_KEY",
      "generate.WECHAT_SECRET",
    ])
    error_message = "A secret is readable by just the functions that need it."
  }

  assert {
    condition = alltrue([
      for name, function in google_cloudfunctions2_function.main :
      toset([for variable in function.service_config[0].secret_environment_variables : "${name}.${variable.key}"]) ==
      toset([for grant in keys(google_secret_manager_secret_iam_member.function) : grant if startswith(grant, "${name}.")])
    ])
    error_message = "A function is given exactly the secrets that it may read."
  }

  assert {
    condition = alltrue([
      for version in google_secret_manager_secret_version.main : version.secret_data == null || version.secret_data_wo == null
    ])
    error_message = "No value of a secret is in the state."
  }

  assert {
    condition = alltrue([
      for name, queue in google_cloud_tasks_queue.main :
      queue.http_target[0].oidc_token[0].service_account_email == google_service_account.tasks.email &&
      queue.http_target[0].oidc_token[0].audience == (
        startswith(name, "generate")
        ? "https://lookbook-generate-123456789012.asia-east1.run.app"
        : "https://lookbook-complete-123456789012.asia-east1.run.app"
      )
    ])
    error_message = "A queue's tokens are the tasks account's, and for the function that the queue calls."
  }

  # Figures from the pool: 11 slots.
  assert {
    condition = {
      for name, queue in google_cloud_tasks_queue.main : name => queue.rate_limits[0].max_concurrent_dispatches
    } == { generate = 21, generate-bulk = 16, complete = 64, events = 32 }
    error_message = "The queues' concurrency comes from the number of slots."
  }

  assert {
    condition = (
      google_cloudfunctions2_function.main["generate"].service_config[0].max_instance_count *
      google_cloudfunctions2_function.main["generate"].service_config[0].max_instance_request_concurrency
      >= google_cloud_tasks_queue.main["generate"].rate_limits[0].max_concurrent_dispatches
    )
    error_message = "generate has room for everything that its queues dispatch at once."
  }

  # Time-outs.
  assert {
    condition = alltrue([
      for name in ["generate", "complete"] :
      google_cloudfunctions2_function.main[name].service_config[0].timeout_seconds < local.queues.dispatch_deadline_seconds
    ])
    error_message = "A function ends before Cloud Tasks delivers again."
  }

  # Data is not lost by accident.
  assert {
    condition = (
      google_firestore_database.main.delete_protection_state == "DELETE_PROTECTION_ENABLED" &&
      google_firestore_database.main.point_in_time_recovery_enablement == "POINT_IN_TIME_RECOVERY_ENABLED" &&
      google_firestore_database.main.type == "FIRESTORE_NATIVE"
    )
    error_message = "Firestore is native, protected from deletion, and can be set back in time."
  }

  assert {
    condition     = toset([for field in google_firestore_field.ttl : field.collection]) == toset(local.indexes.ttl)
    error_message = "Every collection with a TTL has its policy."
  }

  # The sweep.
  assert {
    condition = (
      google_cloud_scheduler_job.sweep.http_target[0].uri == "https://lookbook-complete-123456789012.asia-east1.run.app/sweep" &&
      google_cloud_scheduler_job.sweep.http_target[0].oidc_token[0].service_account_email == google_service_account.tasks.email &&
      google_cloud_scheduler_job.sweep.http_target[0].oidc_token[0].audience == "https://lookbook-complete-123456789012.asia-east1.run.app"
    )
    error_message = "The scheduler sweeps through complete, as the tasks account."
  }

  # The archive.
  assert {
    condition     = google_storage_bucket_object.archive[0].name == "lookbook-${substr(filesha256("tests/archive.txt"), 0, 16)}.zip"
    error_message = "The name of the archive carries its hash."
  }

  assert {
    condition     = length(google_compute_security_policy.edge) == 0 && length(google_billing_budget.main) == 0
    error_message = "Edge and budget are made only when asked for."
  }
}

run "relay_needs_no_session_secret" {
  command = apply

  variables {
    auth_mode = "relay"
    wechat    = null
    model     = { director = "" }
    secret_values = {
      CALLBACK_SECRET    = "made up"
      GEMINI_API_KEYS    = "[{\"id\":\"key1\",\"key\":\"a\",\"maxConcurrent\":3},{\"id\":\"key2\",\"key\":\"b\"},{\"id\":\"key3\",\"key\":\"c\"},{\"id\":\"key4\",\"key\":\"d\",\"maxConcurrent\":2}]"
      RELAY_SECRET       = "made up"
      TENCENT_SECRET_ID  = "made up"
      TENCENT_SECRET_KEY = "made up"
    }
  }

  assert {
    condition = toset(keys(google_secret_manager_secret.main)) == toset([
      "CALLBACK_SECRET", "GEMINI_API_KEYS", "RELAY_SECRET", "TENCENT_SECRET_ID", "TENCENT_SECRET_KEY",
    ])
    error_message = "Secrets that nobody reads are not made."
  }
}

run "everything_switched_on" {
  command = apply

  variables {
    edge             = { domain = "photos.example.com", requests_per_minute = 120 }
    budget           = { billing_account = "000000-000000-000000", amount = 500 }
    alert_emails     = ["oncall@example.com"]
    operators        = ["group:operators@example.com"]
    internal_ingress = true
  }

  assert {
    condition     = google_cloudfunctions2_function.main["entry"].service_config[0].ingress_settings == "ALLOW_INTERNAL_AND_GCLB"
    error_message = "With an edge, nobody gets round it."
  }

  assert {
    condition     = google_compute_security_policy.edge["main"].rule[1].rate_limit_options[0].rate_limit_threshold[0].count == 120
    error_message = "Cloud Armor limits each address."
  }

  assert {
    condition     = alltrue([for policy in google_monitoring_alert_policy.main : length(policy.notification_channels) == 1])
    error_message = "Every alert reaches somebody."
  }
}

run "a_larger_pool_means_larger_queues" {
  command = apply

  variables {
    key_pool      = { for number in range(100) : "key${number}" => 3 }
    secret_values = {}
  }

  assert {
    condition     = google_cloud_tasks_queue.main["generate"].rate_limits[0].max_concurrent_dispatches == 454
    error_message = "300 slots, half as many again, and four."
  }
}

run "rollback_takes_a_former_archive" {
  command = apply

  variables {
    archive        = null
    former_archive = "lookbook-0123456789abcdef.zip"
    secret_values  = {}
  }

  assert {
    condition = alltrue([
      for function in google_cloudfunctions2_function.main :
      function.build_config[0].source[0].storage_source[0].object == "lookbook-0123456789abcdef.zip"
    ])
    error_message = "All three functions go back."
  }
}

run "a_lease_shorter_than_the_call_is_refused" {
  command = plan

  variables {
    timing = { call = 200 }
  }

  expect_failures = [var.timing]
}

run "a_function_outliving_its_dispatch_is_refused" {
  command = plan

  variables {
    timing = { generate = 900 }
  }

  expect_failures = [var.timing]
}

run "keys_that_are_not_the_pool_are_refused" {
  command = plan

  variables {
    key_pool = { key1 = 3 }
  }

  expect_failures = [var.secret_values]
}

run "a_missing_secret_is_refused" {
  command = plan

  variables {
    secret_values = { CALLBACK_SECRET = "made up" }
  }

  expect_failures = [var.secret_values]
}

run "an_archive_that_was_not_made_is_refused" {
  command = plan

  variables {
    archive = "build/nowhere.zip"
  }

  expect_failures = [var.archive]
}

run "an_open_entry_is_refused" {
  command = plan

  variables {
    auth_mode = "none"
  }

  expect_failures = [var.auth_mode]
}
