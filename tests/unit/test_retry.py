"""What follows a failure: the design's error table row by row (A-070 … A-079, A-120 … A-125, A-211)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from shared.errors import (
    ContentPolicyViolation,
    InsufficientQuota,
    InternalError,
    InvalidApiKey,
    InvalidImageFormat,
    InvalidPrompt,
    LookbookError,
    NoImageReturned,
    RateLimitExceeded,
    ServiceUnavailable,
    SourceRefused,
    SourceUnavailable,
    Terminal,
    TimedOut,
    Transient,
    UnknownError,
)
from shared.retry import (
    MOST_ATTEMPTS,
    POLICIES,
    Decision,
    GiveUp,
    KeyEffect,
    Retry,
    cool_until,
    decide,
    next_los_angeles_midnight,
)

NOW = datetime(2025, 10, 13, 8, 0, tzinfo=UTC)
DEADLINE = NOW + timedelta(minutes=30)
SECOND = timedelta(seconds=1)


@dataclass(frozen=True, kw_only=True)
class Row:
    error: type[Transient]
    code: str
    wait: int
    most: int | None
    switch_key: bool
    effect: KeyEffect


TABLE = [
    # the domain cools, and the shot may go on with another one
    Row(
        error=RateLimitExceeded,
        code="RATE_LIMIT_EXCEEDED",
        wait=60,
        most=5,
        switch_key=True,
        effect=KeyEffect.COOL_DOMAIN,
    ),
    #
    Row(
        error=InternalError,
        code="INTERNAL_ERROR",
        wait=5,
        most=3,
        switch_key=False,
        effect=KeyEffect.COUNT_ERROR,
    ),
    #
    Row(error=TimedOut, code="TIMEOUT", wait=10, most=3, switch_key=False, effect=KeyEffect.COUNT_ERROR),
    #
    Row(
        error=ServiceUnavailable,
        code="SERVICE_UNAVAILABLE",
        wait=30,
        most=3,
        switch_key=True,
        effect=KeyEffect.COOL_DOMAIN,
    ),
    # 200 without a picture: the key did nothing wrong
    Row(
        error=NoImageReturned,
        code="NO_IMAGE_RETURNED",
        wait=2,
        most=2,
        switch_key=False,
        effect=KeyEffect.NONE,
    ),
    #
    Row(
        error=UnknownError,
        code="UNKNOWN_ERROR",
        wait=5,
        most=3,
        switch_key=False,
        effect=KeyEffect.COUNT_ERROR,
    ),
    # the key's fault, not the shot's
    Row(
        error=InvalidApiKey,
        code="INVALID_API_KEY",
        wait=0,
        most=None,
        switch_key=True,
        effect=KeyEffect.DISABLE,
    ),
    # likewise
    Row(
        error=InsufficientQuota,
        code="INSUFFICIENT_QUOTA",
        wait=0,
        most=None,
        switch_key=True,
        effect=KeyEffect.COOL_DOMAIN,
    ),
]
COUNTED = [row for row in TABLE if row.most is not None]
SWITCHING = [row for row in TABLE if row.switch_key]
STAYING = [row for row in TABLE if not row.switch_key]
TERMINAL = [
    (InvalidPrompt, "INVALID_PROMPT"),
    (InvalidImageFormat, "INVALID_IMAGE_FORMAT"),
    (ContentPolicyViolation, "CONTENT_POLICY_VIOLATION"),
    (SourceUnavailable, "SOURCE_UNAVAILABLE"),
    (SourceRefused, "SOURCE_REFUSED"),
]


def code_of(value: object) -> str | None:
    return value.code if isinstance(value, Row) else None


def after(
    error: LookbookError,
    *,
    retries: dict[str, int] | None = None,
    attempts: int = 1,
    deadline: datetime = DEADLINE,
    other_domain_free: bool = False,
    keys_left: bool = True,
) -> Decision:
    return decide(
        error,
        retries=retries or {},
        attempts=attempts,
        now=NOW,
        deadline=deadline,
        other_domain_free=other_domain_free,
        keys_left=keys_left,
    )


def leaves(kind: type[LookbookError]) -> Iterator[type[LookbookError]]:
    """Of the vocabulary itself: what adapters derive from it is theirs."""
    children = [child for child in kind.__subclasses__() if child.__module__ == "shared.errors"]
    if not children:
        yield kind
    for child in children:
        yield from leaves(child)


@pytest.mark.parametrize("row", TABLE, ids=code_of)
def test_each_row_of_the_table_is_as_the_design_says(row: Row) -> None:
    policy = POLICIES[row.code]
    assert row.error.code == row.code
    assert policy.wait == row.wait * SECOND
    assert policy.most == row.most
    assert policy.switch_key is row.switch_key
    assert policy.effect is row.effect


def test_the_table_has_no_other_rows_and_covers_every_transient_error() -> None:
    assert set(POLICIES) == {row.code for row in TABLE} == {kind.code for kind in leaves(Transient)}


def test_no_terminal_error_has_a_policy() -> None:
    assert {kind.code for kind in leaves(Terminal)} == {code for _, code in TERMINAL}
    assert not set(POLICIES) & {code for _, code in TERMINAL}


@pytest.mark.parametrize(("kind", "code"), TERMINAL)
def test_a_terminal_error_ends_the_shot_at_the_first_try(kind: type[Terminal], code: str) -> None:
    assert after(kind(), other_domain_free=True) == GiveUp(code=code, retriable=False)


@pytest.mark.parametrize("row", TABLE, ids=code_of)
def test_a_first_failure_is_tried_again_after_the_wait_of_its_row(row: Row) -> None:
    assert after(row.error()) == Retry(code=row.code, at=NOW + row.wait * SECOND)


@pytest.mark.parametrize("row", COUNTED, ids=code_of)
def test_the_last_retry_of_a_code_is_given_and_one_more_is_not(row: Row) -> None:
    assert row.most is not None
    assert isinstance(after(row.error(), retries={row.code: row.most - 1}), Retry)
    assert after(row.error(), retries={row.code: row.most}) == GiveUp(code=row.code, retriable=True)


@pytest.mark.parametrize("row", COUNTED, ids=code_of)
def test_retries_of_other_codes_do_not_use_up_those_of_this_one(row: Row) -> None:
    spent = {other.code: 99 for other in TABLE if other is not row}
    assert isinstance(after(row.error(), retries=spent), Retry)


@pytest.mark.parametrize("row", SWITCHING, ids=code_of)
def test_a_shot_goes_on_at_once_when_another_domain_has_a_free_slot(row: Row) -> None:
    assert after(row.error(), other_domain_free=True) == Retry(code=row.code, at=NOW)


@pytest.mark.parametrize("row", SWITCHING, ids=code_of)
def test_a_free_slot_elsewhere_does_not_wait_for_the_delay_that_the_first_key_was_told(row: Row) -> None:
    error = row.error(retry_after=timedelta(minutes=5))
    assert after(error, other_domain_free=True) == Retry(code=row.code, at=NOW)


@pytest.mark.parametrize("row", SWITCHING, ids=code_of)
def test_a_shot_without_another_key_waits_as_long_as_the_key_was_told_to(row: Row) -> None:
    """Except where the key itself is at fault: the shot doesn't wait for that one."""
    error = row.error(retry_after=timedelta(minutes=5))
    assert after(error) == Retry(code=row.code, at=NOW + (300 if row.wait else 0) * SECOND)


@pytest.mark.parametrize("row", STAYING, ids=code_of)
def test_an_error_that_keeps_its_key_waits_although_others_are_free(row: Row) -> None:
    assert after(row.error(), other_domain_free=True) == Retry(code=row.code, at=NOW + row.wait * SECOND)


@pytest.mark.parametrize("row", STAYING, ids=code_of)
def test_a_longer_wait_that_the_other_side_asked_for_is_honoured(row: Row) -> None:
    error = row.error(retry_after=45 * SECOND)
    assert after(error) == Retry(code=row.code, at=NOW + 45 * SECOND)


@pytest.mark.parametrize("row", STAYING, ids=code_of)
def test_a_shorter_wait_that_the_other_side_offers_is_not_taken(row: Row) -> None:
    error = row.error(retry_after=timedelta(milliseconds=1))
    assert after(error) == Retry(code=row.code, at=NOW + row.wait * SECOND)


@pytest.mark.parametrize("row", TABLE, ids=code_of)
def test_no_code_goes_beyond_the_cap_on_attempts(row: Row) -> None:
    assert isinstance(after(row.error(), attempts=MOST_ATTEMPTS - 1), Retry)
    assert after(row.error(), attempts=MOST_ATTEMPTS) == GiveUp(code=row.code, retriable=True)


def test_the_cap_on_attempts_leaves_room_for_every_retry_of_the_table() -> None:
    assert sum(row.most or 0 for row in TABLE) < MOST_ATTEMPTS


@pytest.mark.parametrize("row", TABLE, ids=code_of)
def test_a_retry_that_would_come_at_the_deadline_or_later_is_not_made(row: Row) -> None:
    due = NOW + row.wait * SECOND
    assert after(row.error(), deadline=due) == GiveUp(code=row.code, retriable=True)
    assert isinstance(after(row.error(), deadline=due + timedelta(microseconds=1)), Retry)


def test_a_refused_key_ends_the_shot_only_when_no_other_key_is_left() -> None:
    assert after(InvalidApiKey(), keys_left=True) == Retry(code="INVALID_API_KEY", at=NOW)
    assert after(InvalidApiKey(), keys_left=False) == GiveUp(code="INVALID_API_KEY", retriable=True)


def test_a_refused_key_costs_the_shot_none_of_its_retries() -> None:
    assert isinstance(after(InvalidApiKey(), retries={"INVALID_API_KEY": 20}, attempts=21), Retry)


def test_a_rate_limited_domain_cools_for_a_minute_when_it_names_no_delay() -> None:
    assert cool_until(RateLimitExceeded(), hits=0, now=NOW) == NOW + 60 * SECOND


def test_a_rate_limited_domain_cools_for_exactly_the_delay_it_names() -> None:
    assert cool_until(RateLimitExceeded(retry_after=17 * SECOND), hits=0, now=NOW) == NOW + 17 * SECOND


@pytest.mark.parametrize(
    ("hits", "seconds"), [(0, 60), (1, 120), (2, 240), (3, 480), (4, 960), (5, 960), (1000, 960)]
)
def test_a_domain_that_is_rate_limited_again_and_again_cools_longer_up_to_a_limit(
    hits: int, seconds: int
) -> None:
    assert cool_until(RateLimitExceeded(), hits=hits, now=NOW) == NOW + seconds * SECOND


def test_a_delay_that_is_named_is_not_escalated() -> None:
    assert cool_until(RateLimitExceeded(retry_after=17 * SECOND), hits=4, now=NOW) == NOW + 17 * SECOND


def test_an_unavailable_service_is_not_escalated() -> None:
    assert cool_until(ServiceUnavailable(), hits=4, now=NOW) == NOW + 30 * SECOND


def test_a_spent_daily_quota_cools_until_midnight_in_los_angeles_whatever_delay_is_named() -> None:
    error = RateLimitExceeded(per_day=True, retry_after=17 * SECOND)
    assert cool_until(error, hits=0, now=NOW) == datetime(2025, 10, 14, 7, 0, tzinfo=UTC)


def test_an_unavailable_service_cools_for_half_a_minute() -> None:
    assert cool_until(ServiceUnavailable(), hits=0, now=NOW) == NOW + 30 * SECOND


def test_an_account_without_quota_cools_for_much_longer_than_a_busy_one() -> None:
    assert cool_until(InsufficientQuota(), hits=0, now=NOW) >= NOW + timedelta(hours=1)


MIDNIGHTS = [
    # an ordinary summer day: UTC-7
    ("2025-07-01T12:00:00", "2025-07-02T07:00:00"),
    # an ordinary winter day: UTC-8
    ("2025-12-24T12:00:00", "2025-12-25T08:00:00"),
    # the evening before clocks go forward: midnight is still in winter time
    ("2025-03-09T07:59:59", "2025-03-09T08:00:00"),
    # midnight of the day they do: the day has 23 hours
    ("2025-03-09T08:00:00", "2025-03-10T07:00:00"),
    # a minute before, and right at, the hour that does not exist
    ("2025-03-09T09:59:00", "2025-03-10T07:00:00"),
    ("2025-03-09T10:00:00", "2025-03-10T07:00:00"),
    # the evening before clocks go back: midnight is still in summer time
    ("2025-11-02T06:59:59", "2025-11-02T07:00:00"),
    # midnight of the day they do: the day has 25 hours
    ("2025-11-02T07:00:00", "2025-11-03T08:00:00"),
    # half past one, the first time and the second time
    ("2025-11-02T08:30:00", "2025-11-03T08:00:00"),
    ("2025-11-02T09:30:00", "2025-11-03T08:00:00"),
    # New Year's Eve, when it is next year in UTC already
    ("2026-01-01T03:00:00", "2026-01-01T08:00:00"),
    # the last of February in a leap year
    ("2028-02-29T12:00:00", "2028-03-01T08:00:00"),
]


@pytest.mark.parametrize(("now", "midnight"), MIDNIGHTS)
def test_daily_quotas_come_back_at_the_wall_clocks_midnight(now: str, midnight: str) -> None:
    found = next_los_angeles_midnight(datetime.fromisoformat(now).replace(tzinfo=UTC))
    assert found == datetime.fromisoformat(midnight).replace(tzinfo=UTC)


def test_midnight_is_told_in_the_zone_of_the_question() -> None:
    asked = datetime(2025, 7, 1, 20, 0, tzinfo=ZoneInfo("Asia/Shanghai"))
    assert next_los_angeles_midnight(asked).isoformat() == "2025-07-02T15:00:00+08:00"
