"""The error bodies of the Gemini API, as Google writes them: callers tell cases apart by their details
alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

_TYPE = "type.googleapis.com/google.rpc."
_DOMAIN = "googleapis.com"
_SERVICE = "generativelanguage.googleapis.com"

_STATUS_NAMES = {
    400: "INVALID_ARGUMENT",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
}


class ApiError(Exception):
    """A request that ends with an error."""

    def __init__(self, code: int, message: str, details: list[dict[str, Any]] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.details = details or []

    def body(self) -> dict[str, Any]:
        error: dict[str, Any] = {
            "code": self.code,
            "message": str(self),
            "status": _STATUS_NAMES.get(self.code, "UNKNOWN"),
        }
        if self.details:
            error["details"] = self.details
        return {"error": error}


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """Which limit was reached."""

    quota_id: str
    metric: str
    limit: int
    model: str
    retry_after: float
    """Seconds."""
    dimensions: dict[str, str] = field(default_factory=dict)


def per_minute(limit: int, model: str, retry_after: float) -> Violation:
    return Violation(
        quota_id="GenerateRequestsPerMinutePerProjectPerModel",
        metric=f"{_SERVICE}/generate_requests_per_model",
        limit=limit,
        model=model,
        retry_after=retry_after,
    )


def per_day(limit: int, model: str, retry_after: float) -> Violation:
    return Violation(
        quota_id="GenerateRequestsPerDayPerProjectPerModel",
        metric=f"{_SERVICE}/generate_requests_per_model_per_day",
        limit=limit,
        model=model,
        retry_after=retry_after,
    )


def concurrent(limit: int, model: str) -> Violation:
    return Violation(
        quota_id="GenerateConcurrentRequestsPerKeyPerModel",
        metric=f"{_SERVICE}/generate_concurrent_requests",
        limit=limit,
        model=model,
        retry_after=1,
    )


def exhausted(violation: Violation, retry_delay: str | None = None) -> ApiError:
    delay = retry_delay or f"{max(1, round(violation.retry_after))}s"
    return ApiError(
        429,
        "You exceeded your current quota, please check your plan and billing details.\n"
        f"* Quota exceeded for metric: {violation.metric}, limit: {violation.limit}, "
        f"model: {violation.model}\n"
        f"Please retry in {delay}.",
        [
            {
                "@type": _TYPE + "QuotaFailure",
                "violations": [
                    {
                        "quotaMetric": violation.metric,
                        "quotaId": violation.quota_id,
                        "quotaDimensions": {"location": "global", "model": violation.model},
                        "quotaValue": str(violation.limit),
                    }
                ],
            },
            {
                "@type": _TYPE + "Help",
                "links": [
                    {
                        "description": "Learn more about Gemini API quotas",
                        "url": "https://ai.google.dev/gemini-api/docs/rate-limits",
                    }
                ],
            },
            {"@type": _TYPE + "RetryInfo", "retryDelay": delay},
        ],
    )


def key_invalid() -> ApiError:
    return ApiError(
        400,
        "API key not valid. Please pass a valid API key.",
        [
            {
                "@type": _TYPE + "ErrorInfo",
                "reason": "API_KEY_INVALID",
                "domain": _DOMAIN,
                "metadata": {"service": _SERVICE},
            },
            {
                "@type": _TYPE + "LocalizedMessage",
                "locale": "en-US",
                "message": "API key not valid. Please pass a valid API key.",
            },
        ],
    )


def key_missing() -> ApiError:
    return ApiError(
        403,
        "Method doesn't allow unregistered callers (callers without established identity).",
    )


def permission_denied() -> ApiError:
    return ApiError(
        403,
        "Your project has been denied access. Please contact support.",
        [
            {
                "@type": _TYPE + "ErrorInfo",
                "reason": "CONSUMER_SUSPENDED",
                "domain": _DOMAIN,
                "metadata": {"service": _SERVICE},
            }
        ],
    )


def bad_request(field_name: str, description: str) -> ApiError:
    return ApiError(
        400,
        description,
        [
            {
                "@type": _TYPE + "BadRequest",
                "fieldViolations": [{"field": field_name, "description": description}],
            }
        ],
    )


def internal() -> ApiError:
    return ApiError(500, "An internal error has occurred. Please retry or report the problem.")


def overloaded() -> ApiError:
    return ApiError(503, "The model is overloaded. Please try again later.")


def unimplemented(what: str) -> ApiError:
    return ApiError(501, f"Not in this embedded Gemini: {what}")
