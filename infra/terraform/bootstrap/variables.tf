variable "project_id" {
  description = "The Google Cloud project."
  type        = string
}

variable "region" {
  description = "Where the state is kept and builds run."
  type        = string
  default     = "asia-east1"
}

variable "environment" {
  description = "dev or prod."
  type        = string

  validation {
    condition     = contains(["dev", "prod"], var.environment)
    error_message = "The environment is dev or prod."
  }
}

variable "repository" {
  description = "The repository connected to Cloud Build: projects/…/locations/…/connections/…/repositories/…; null: no triggers."
  type        = string
  default     = null
}

variable "edge" {
  description = "Whether the environment has a domain of its own (load balancer, Cloud Armor)."
  type        = bool
  default     = false
}
