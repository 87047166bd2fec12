"""What can go wrong, as types: everything else in the project raises and catches these.

LookbookError
├── Terminal                      trying again cannot help; the shot or the request ends here
│   ├── InvalidPrompt             INVALID_PROMPT
│   ├── InvalidImageFormat        INVALID_IMAGE_FORMAT
│   ├── ContentPolicyViolation    CONTENT_POLICY_VIOLATION
│   ├── SourceUnavailable         SOURCE_UNAVAILABLE     a source photo that nobody can fetch
│   └── SourceRefused             SOURCE_REFUSED         a URL that we will not fetch
└── Transient                     another try may succeed
    ├── RateLimitExceeded         RATE_LIMIT_EXCEEDED
    ├── InternalError             INTERNAL_ERROR
    ├── TimedOut                  TIMEOUT
    ├── ServiceUnavailable        SERVICE_UNAVAILABLE
    ├── NoImageReturned           NO_IMAGE_RETURNED
    ├── UnknownError              UNKNOWN_ERROR
    ├── InvalidApiKey             INVALID_API_KEY        the key's fault, not the shot's
    └── InsufficientQuota         INSUFFICIENT_QUOTA     likewise

How often and how soon a transient error is tried again is policy, not nature: see `retry.py`.
The message of an error may reach a user: it never holds a key, a token or a signed URL.
"""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar


class LookbookError(Exception):
    """Something went wrong."""

    code: ClassVar[str] = "UNKNOWN_ERROR"

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or type(self).__doc__)

    @property
    def message(self) -> str:
        return str(self)


class Terminal(LookbookError):
    """This cannot succeed, however often it is tried."""


class InvalidPrompt(Terminal):
    """The prompt was refused as invalid."""

    code = "INVALID_PROMPT"


class InvalidImageFormat(Terminal):
    """The photo is not an image that can be used."""

    code = "INVALID_IMAGE_FORMAT"


class ContentPolicyViolation(Terminal):
    """The picture was refused by the content policy."""

    code = "CONTENT_POLICY_VIOLATION"


class SourceUnavailable(Terminal):
    """The source photo could not be fetched."""

    code = "SOURCE_UNAVAILABLE"


class SourceRefused(Terminal):
    """The address of the source photo is not allowed."""

    code = "SOURCE_REFUSED"


class Transient(LookbookError):
    """This failed, and another try may succeed."""

    def __init__(self, message: str | None = None, *, retry_after: timedelta | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """How long the other side asked us to wait, if it said."""


class RateLimitExceeded(Transient):
    """The key's quota is used up for the moment."""

    code = "RATE_LIMIT_EXCEEDED"

    def __init__(
        self,
        message: str | None = None,
        *,
        retry_after: timedelta | None = None,
        per_day: bool = False,
    ) -> None:
        super().__init__(message, retry_after=retry_after)
        self.per_day = per_day
        """The quota that ran out is a daily one: it returns at midnight in Los Angeles."""


class InternalError(Transient):
    """The other side failed inside."""

    code = "INTERNAL_ERROR"


class TimedOut(Transient):
    """No answer came in time."""

    code = "TIMEOUT"


class ServiceUnavailable(Transient):
    """The other side cannot be reached or is overloaded."""

    code = "SERVICE_UNAVAILABLE"


class NoImageReturned(Transient):
    """The answer had no picture in it."""

    code = "NO_IMAGE_RETURNED"


class UnknownError(Transient):
    """An answer that is not understood."""

    code = "UNKNOWN_ERROR"


class InvalidApiKey(Transient):
    """The API key was refused."""

    code = "INVALID_API_KEY"


class InsufficientQuota(Transient):
    """The key's account has no quota left."""

    code = "INSUFFICIENT_QUOTA"
