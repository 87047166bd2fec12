"""What happens after a failure: the error table of the design as data, and the decision as a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Final
from zoneinfo import ZoneInfo

from shared.errors import LookbookError, RateLimitExceeded, Terminal, Transient

MOST_ATTEMPTS: Final = 24
"""No shot is claimed more often than this, whatever the reasons: a crash loop ends here."""


_MOST_DOUBLINGS: Final = 4


class KeyEffect(Enum):
    """What a failure means for the key that was used."""

    NONE = auto()
    COUNT_ERROR = auto()
    COOL_DOMAIN = auto()
    DISABLE = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    wait: timedelta
    most: int | None
    """How many retries for this code; none: bounded only by MOST_ATTEMPTS and the task's deadline."""
    switch_key: bool
    effect: KeyEffect
    cooling: timedelta = timedelta(0)


def _policy(wait: float, most: int | None, switch_key: bool, effect: KeyEffect, cooling: float = 0) -> Policy:
    return Policy(
        wait=timedelta(seconds=wait),
        most=most,
        switch_key=switch_key,
        effect=effect,
        cooling=timedelta(seconds=cooling),
    )


POLICIES: Final[dict[str, Policy]] = {
    "RATE_LIMIT_EXCEEDED": _policy(60, 5, True, KeyEffect.COOL_DOMAIN, 60),
    "INTERNAL_ERROR": _policy(5, 3, False, KeyEffect.COUNT_ERROR),
    "TIMEOUT": _policy(10, 3, False, KeyEffect.COUNT_ERROR),
    "SERVICE_UNAVAILABLE": _policy(30, 3, True, KeyEffect.COOL_DOMAIN, 30),
    "NO_IMAGE_RETURNED": _policy(2, 2, False, KeyEffect.NONE),
    "UNKNOWN_ERROR": _policy(5, 3, False, KeyEffect.COUNT_ERROR),
    "INVALID_API_KEY": _policy(0, None, True, KeyEffect.DISABLE),
    "INSUFFICIENT_QUOTA": _policy(0, None, True, KeyEffect.COOL_DOMAIN, 3600),
}


KEYS_OWN_FAULT: Final = frozenset({"INVALID_API_KEY", "INSUFFICIENT_QUOTA"})
"""A shot goes on with another key, and ends with such a code only when there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    code: str
    at: datetime
    """When the shot is due again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUp:
    code: str
    retriable: bool
    """The code could have been tried again, but its retries, the attempts or the time are used up."""


Decision = Retry | GiveUp


def decide(
    error: LookbookError,
    *,
    retries: Mapping[str, int],
    attempts: int,
    now: datetime,
    deadline: datetime,
    other_domain_free: bool,
    keys_left: bool,
) -> Decision:
    """Whether, and when, a shot is tried again after `error`.

    `other_domain_free`: a slot of another quota domain could take the shot at once.
    `keys_left`: some enabled key would remain after this failure's effect on its own.
    """
    if isinstance(error, Terminal) or error.code not in POLICIES:
        return GiveUp(code=error.code, retriable=False)
    policy = POLICIES[error.code]
    if policy.most is not None and retries.get(error.code, 0) >= policy.most:
        return GiveUp(code=error.code, retriable=True)
    if attempts >= MOST_ATTEMPTS or (error.code in KEYS_OWN_FAULT and not keys_left):
        return GiveUp(code=error.code, retriable=True)
    wait = policy.wait
    if isinstance(error, Transient) and error.retry_after is not None and wait:
        # For a quota the other side knows better than the table when it will be back.
        wait = error.retry_after if policy.switch_key else max(wait, error.retry_after)
    if policy.switch_key and other_domain_free:
        wait = timedelta(0)
    at = now + wait
    if at >= deadline:
        return GiveUp(code=error.code, retriable=True)
    return Retry(code=error.code, at=at)


def cool_until(error: LookbookError, *, hits: int, now: datetime) -> datetime:
    """Until when the quota domain of the key is left alone; `hits`: how often it has cooled since it last worked."""
    if isinstance(error, RateLimitExceeded) and error.per_day:
        return next_los_angeles_midnight(now)
    if isinstance(error, Transient) and error.retry_after is not None:
        return now + error.retry_after
    cooling = POLICIES[error.code].cooling
    if isinstance(error, RateLimitExceeded):
        cooling *= 2 ** min(hits, _MOST_DOUBLINGS)
    return now + cooling


def next_los_angeles_midnight(now: datetime) -> datetime:
    """When Google's per-day quotas come back; the wall clock rules, so daylight saving is honoured."""
    zone = ZoneInfo("America/Los_Angeles")
    tomorrow = now.astimezone(zone).date() + timedelta(days=1)
    midnight = datetime(tomorrow.year, tomorrow.month, tomorrow.day, tzinfo=zone)
    return midnight.astimezone(now.tzinfo)
