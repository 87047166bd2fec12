variable "project_id" {
  description = "The Google Cloud project. One environment, one project: Firestore's (default) database is the project's own."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{4,28}[a-z0-9]$", var.project_id))
    error_message = "A project id is 6 to 30 lower-case letters, digits and hyphens."
  }
}

variable "region" {
  description = "Where everything runs and is kept."
  type        = string
  default     = "asia-east1"
}

variable "environment" {
  description = "dev or prod; a label on everything, and the difference in what may be deleted."
  type        = string

  validation {
    condition     = contains(["dev", "prod"], var.environment)
    error_message = "The environment is dev or prod."
  }
}

variable "name" {
  description = "How the names of functions, accounts and secrets begin."
  type        = string
  default     = "lookbook"

  # A service account's id has at most 30 characters, and "-generate" is appended.
  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{1,19}[a-z0-9]$", var.name))
    error_message = "The name is 3 to 21 lower-case letters, digits and hyphens."
  }
}

variable "labels" {
  description = "Labels beside app and environment."
  type        = map(string)
  default     = {}
}

variable "archive" {
  description = "The source archive on this machine, as `make package` writes it; null together with former_archive."
  type        = string
  default     = null

  validation {
    condition     = var.archive == null || can(filesha256(var.archive))
    error_message = "There is no source archive there yet: run `make package` first."
  }
}

variable "former_archive" {
  description = "Rollback: the name of an archive that was deployed before (output `archive`); it is still in the bucket."
  type        = string
  default     = null

  validation {
    condition     = (var.archive == null) != (var.former_archive == null)
    error_message = "Give either archive (make package) or former_archive (rollback)."
  }

  validation {
    condition     = var.former_archive == null || can(regex("^lookbook-[0-9a-f]{16}\\.zip$", var.former_archive))
    error_message = "A former archive is named lookbook-<16 hexadecimal digits>.zip."
  }
}

variable "key_pool" {
  description = "The key pool without its secrets: id of each Gemini key = how many pictures it may draw at once (maxConcurrent)."
  type        = map(number)

  validation {
    condition = length(var.key_pool) > 0 && alltrue([
      for id, slots in var.key_pool :
      can(regex("^[A-Za-z0-9_-]{1,64}$", id)) && slots >= 1 && slots <= 100 && floor(slots) == slots
    ])
    error_message = "At least one key; ids of 1 to 64 letters, digits, - or _; 1 to 100 slots each."
  }
}

variable "secret_values" {
  description = "Name = value of every secret (output `secrets` lists them) for the first apply or a new revision; {} leaves them as they are. Ephemeral: never in a plan or a state."
  type        = map(string)
  ephemeral   = true

  validation {
    condition     = length(var.secret_values) == 0 || length(setsubtract(local.secrets, keys(var.secret_values))) == 0
    error_message = "Give a value for every secret, or {} to leave all as they are. Needed: ${join(", ", local.secrets)}."
  }

  validation {
    condition = !contains(keys(var.secret_values), "GEMINI_API_KEYS") || try(tomap({
      for key in jsondecode(var.secret_values["GEMINI_API_KEYS"]) : key.id => try(key.maxConcurrent, 3)
    }) == var.key_pool, false)
    error_message = "GEMINI_API_KEYS is a JSON list whose ids and maxConcurrent are those of key_pool."
  }
}

variable "secret_revisions" {
  description = "Name = a number that is raised to write the value in secret_values as a new version."
  type        = map(number)
  default     = {}
}

variable "auth_mode" {
  description = "wechat: sessions of wx.login; relay: a CloudBase function signs for its user."
  type        = string

  validation {
    condition     = contains(["wechat", "relay"], var.auth_mode)
    error_message = "A deployed entry takes wechat or relay; none is for local use."
  }
}

variable "wechat" {
  description = "The mini-program: its appid, and the id of its cloud storage for cloud:// sources. Needed for auth_mode wechat and for cloud:// sources."
  type = object({
    appid = string
    env   = optional(string, "")
  })
  default = null

  validation {
    condition     = var.auth_mode != "wechat" || var.wechat != null
    error_message = "auth_mode wechat needs wechat = { appid = … }."
  }
}

variable "cos" {
  description = "The Tencent COS bucket (name-appid) that pictures are kept in."
  type = object({
    bucket   = string
    region   = optional(string, "ap-guangzhou")
    url_days = optional(number, 7)
  })
}

variable "callback" {
  description = "Where tasks without a callback of their own are reported, and which hosts a task may name."
  type = object({
    url             = optional(string, "")
    hosts           = optional(list(string), [])
    timeout_seconds = optional(number, 10)
  })
  default = {}
}

variable "source_hosts" {
  description = "Hosts that source photos may come from; empty: any public host."
  type        = list(string)
  default     = []
}

variable "model" {
  description = "Which models draw and direct; without director no OpenAI key is needed and poses come from the library."
  type = object({
    painter                  = optional(string, "gemini-2.5-flash-image")
    director                 = optional(string, "gpt-4o-mini")
    director_timeout_seconds = optional(number, 15)
  })
  default = {}
}

variable "picture" {
  description = "How pictures are encoded before they leave Google."
  type = object({
    format   = optional(string, "webp")
    quality  = optional(number, 88)
    max_edge = optional(number, 2048)
  })
  default = {}
}

variable "timing" {
  description = "Seconds. call < lease; slot wait + lease + upload < the time-out of generate < Cloud Tasks' dispatch deadline (queues.json)."
  type = object({
    call          = optional(number, 120)
    lease         = optional(number, 150)
    slot_wait     = optional(number, 20)
    upload        = optional(number, 60)
    generate      = optional(number, 600)
    complete      = optional(number, 120)
    entry         = optional(number, 900)
    task_deadline = optional(number, 1800)
  })
  default = {}

  validation {
    condition     = var.timing.call < var.timing.lease
    error_message = "The lease must outlive the call, or a slot is used twice at once."
  }

  validation {
    condition     = var.timing.slot_wait + var.timing.lease + var.timing.upload < var.timing.generate
    error_message = "generate must have the time to wait for a slot, draw and upload."
  }

  validation {
    condition     = max(var.timing.generate, var.timing.complete) < local.queues.dispatch_deadline_seconds
    error_message = "A function must end before Cloud Tasks gives up on it and delivers again."
  }

  validation {
    condition     = local.queues.dispatch_deadline_seconds < var.timing.task_deadline
    error_message = "A task must live longer than one dispatch of one of its shots."
  }
}

variable "keep_finished_days" {
  description = "After how many days tasks, shots and events are deleted by Firestore's TTL."
  type        = number
  default     = 30
}

variable "session_minutes" {
  description = "How long a session of wx.login lasts."
  type        = number
  default     = 120
}

variable "limits" {
  description = "What one user may have under way and have drawn in a day (0: no limit), the largest request, and the live event streams per instance of entry."
  type = object({
    open_tasks       = optional(number, 20)
    pictures_per_day = optional(number, 1000)
    body_bytes       = optional(number, 262144)
    event_streams    = optional(number, 200)
  })
  default = {}
}

variable "log_level" {
  description = "DEBUG, INFO, WARNING or ERROR."
  type        = string
  default     = "INFO"
}

variable "min_instances" {
  description = "Instances kept warm, per function."
  type = object({
    entry    = optional(number, 0)
    generate = optional(number, 0)
    complete = optional(number, 0)
  })
  default = {}
}

variable "internal_ingress" {
  description = "generate and complete answer only Google-internal callers, on top of IAM and their own token check. `doctor` then cannot reach them from outside."
  type        = bool
  default     = false
}

variable "edge" {
  description = "A domain of your own in front of entry, with TLS, and Cloud Armor limiting each address to so many requests a minute."
  type = object({
    domain              = string
    requests_per_minute = optional(number, 300)
  })
  default = null
}

variable "operators" {
  description = "Members (user:…, group:…) who run `doctor`: they may make tokens of the tasks account."
  type        = list(string)
  default     = []
}

variable "alert_emails" {
  description = "Who is told."
  type        = list(string)
  default     = []
}

variable "budget" {
  description = "Mail at 50, 90 and 100 % of this much a month. Whoever applies needs the right to make budgets on the billing account."
  type = object({
    billing_account = string
    amount          = number
    currency        = optional(string, "USD")
  })
  default = null
}

variable "picture_price" {
  description = "What the model costs per picture, in US dollars, for the cost chart."
  type        = number
  default     = 0.039
}

variable "oldest_minutes" {
  description = "Alert when wake-ups are dispatched this many minutes late."
  type        = number
  default     = 10
}
