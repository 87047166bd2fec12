# What differs from one deployment to the next. Each is described, and checked, in ../../variables.tf.

variable "project_id" {
  description = "The Google Cloud project of this environment."
  type        = string
}

variable "region" {
  description = "Where everything runs and is kept."
  type        = string
  default     = "asia-east1"
}

variable "archive" {
  description = "What `make package` wrote."
  type        = string
  default     = "../../../../build/lookbook.zip"
}

variable "former_archive" {
  description = "Rollback: the name of an archive that was deployed before."
  type        = string
  default     = null
}

variable "key_pool" {
  description = "Id of each Gemini key = its maxConcurrent."
  type        = map(number)
}

variable "secret_values" {
  description = "Every secret's value at the first apply (secrets.auto.tfvars, which git ignores); {} afterwards."
  type        = map(string)
  ephemeral   = true
}

variable "secret_revisions" {
  description = "Secrets whose value is to be written anew: name = a raised number."
  type        = map(number)
  default     = {}
}

variable "auth_mode" {
  description = "wechat or relay."
  type        = string
  default     = "wechat"
}

variable "wechat" {
  description = "The mini-program."
  type        = object({ appid = string, env = optional(string, "") })
  default     = null
}

variable "cos" {
  description = "The Tencent COS bucket."
  type        = object({ bucket = string, region = optional(string, "ap-guangzhou"), url_days = optional(number, 7) })
}

variable "callback" {
  description = "Where tasks are reported."
  type        = object({ url = optional(string, ""), hosts = optional(list(string), []) })
  default     = {}
}

variable "source_hosts" {
  description = "Hosts that source photos may come from; empty: any public host."
  type        = list(string)
  default     = []
}

variable "edge" {
  description = "A domain of your own with Cloud Armor."
  type        = object({ domain = string, requests_per_minute = optional(number, 300) })
  default     = null
}

variable "operators" {
  description = "Who runs `doctor`."
  type        = list(string)
  default     = []
}

variable "alert_emails" {
  description = "Who is told."
  type        = list(string)
  default     = []
}

variable "budget" {
  description = "Mail at 50, 90 and 100 % of this much a month."
  type        = object({ billing_account = string, amount = number, currency = optional(string, "USD") })
  default     = null
}
