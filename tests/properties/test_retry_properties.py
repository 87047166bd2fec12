"""What holds for retries whatever fails, in whatever order, at whatever time of the year."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from hypothesis import given, settings
from hypothesis import strategies as st

from shared.errors import (
    ContentPolicyViolation,
    InsufficientQuota,
    InternalError,
    InvalidApiKey,
    InvalidPrompt,
    LookbookError,
    NoImageReturned,
    RateLimitExceeded,
    ServiceUnavailable,
    TimedOut,
    Transient,
    UnknownError,
)
from shared.retry import (
    MOST_ATTEMPTS,
    POLICIES,
    Decision,
    Retry,
    cool_until,
    decide,
    next_los_angeles_midnight,
)

LOS_ANGELES = ZoneInfo("America/Los_Angeles")
# From the present rules of daylight saving on.
MOMENTS = st.timedeltas(timedelta(0), timedelta(days=91 * 365)).map(
    lambda since: datetime(2008, 1, 1, tzinfo=UTC) + since
)
DELAYS = st.none() | st.timedeltas(timedelta(0), timedelta(days=11))  # what adapters can read: six digits
KINDS: list[type[Transient]] = [
    InternalError,
    TimedOut,
    ServiceUnavailable,
    NoImageReturned,
    UnknownError,
    InvalidApiKey,
    InsufficientQuota,
]
TRANSIENT: st.SearchStrategy[Transient] = st.one_of(
    st.builds(lambda kind, delay: kind(retry_after=delay), st.sampled_from(KINDS), DELAYS),
    st.builds(RateLimitExceeded, retry_after=DELAYS, per_day=st.booleans()),
)
ERRORS: st.SearchStrategy[LookbookError] = st.one_of(
    TRANSIENT, st.builds(InvalidPrompt), st.builds(ContentPolicyViolation)
)


def ask(
    error: LookbookError,
    retries: dict[str, int],
    attempts: int,
    now: datetime,
    left: timedelta,
    elsewhere: bool,
    keys: bool,
) -> Decision:
    return decide(
        error,
        retries=retries,
        attempts=attempts,
        now=now,
        deadline=now + left,
        other_domain_free=elsewhere,
        keys_left=keys,
    )


COUNTS = st.dictionaries(st.sampled_from(sorted(POLICIES)), st.integers(0, 8))
ATTEMPTS = st.integers(1, MOST_ATTEMPTS + 3)
TIME_LEFT = st.timedeltas(timedelta(hours=-1), timedelta(days=1))


@given(ERRORS, COUNTS, ATTEMPTS, MOMENTS, TIME_LEFT, st.booleans(), st.booleans())
@settings(deadline=None)
def test_a_retry_is_neither_in_the_past_nor_beyond_any_limit(
    error: LookbookError,
    retries: dict[str, int],
    attempts: int,
    now: datetime,
    left: timedelta,
    elsewhere: bool,
    keys: bool,
) -> None:
    decision = ask(error, retries, attempts, now, left, elsewhere, keys)
    assert decision.code == error.code
    if isinstance(decision, Retry):
        most = POLICIES[error.code].most
        assert now <= decision.at < now + left
        assert attempts < MOST_ATTEMPTS
        assert most is None or retries.get(error.code, 0) < most
    elif isinstance(error, Transient):
        assert decision.retriable
    else:
        assert not decision.retriable


@given(TRANSIENT, COUNTS, ATTEMPTS, MOMENTS, TIME_LEFT, st.booleans(), st.booleans())
@settings(deadline=None)
def test_more_failures_never_bring_back_a_retry_that_was_refused(
    error: Transient,
    retries: dict[str, int],
    attempts: int,
    now: datetime,
    left: timedelta,
    elsewhere: bool,
    keys: bool,
) -> None:
    if isinstance(ask(error, retries, attempts, now, left, elsewhere, keys), Retry):
        return
    worse = {**retries, error.code: retries.get(error.code, 0) + 1}
    assert not isinstance(ask(error, worse, attempts + 1, now, left, elsewhere, keys), Retry)


@given(st.lists(st.tuples(TRANSIENT, st.booleans()), min_size=MOST_ATTEMPTS + 1, max_size=60), MOMENTS)
@settings(deadline=None, max_examples=50)
def test_a_shot_that_always_fails_ends_within_its_attempts_and_its_time(
    failures: list[tuple[Transient, bool]], start: datetime
) -> None:
    now, deadline = start, start + timedelta(hours=12)
    retries: dict[str, int] = {}
    for attempt, (error, elsewhere) in enumerate(failures, start=1):
        decision = ask(error, retries, attempt, now, deadline - now, elsewhere, keys=True)
        if not isinstance(decision, Retry):
            break
        retries[error.code] = retries.get(error.code, 0) + 1
        now = decision.at
    assert attempt <= MOST_ATTEMPTS
    assert now < deadline
    assert all(count <= most for code, count in retries.items() if (most := POLICIES[code].most) is not None)


@given(TRANSIENT, st.integers(0, 10**6), MOMENTS)
def test_cooling_never_ends_before_it_begins(error: Transient, hits: int, now: datetime) -> None:
    assert cool_until(error, hits=hits, now=now) >= now


@given(TRANSIENT, st.integers(0, 50), MOMENTS)
def test_another_hit_never_makes_cooling_shorter(error: Transient, hits: int, now: datetime) -> None:
    assert cool_until(error, hits=hits + 1, now=now) >= cool_until(error, hits=hits, now=now)


@given(MOMENTS)
def test_the_next_midnight_is_the_first_moment_of_the_next_day_on_the_wall(now: datetime) -> None:
    midnight = next_los_angeles_midnight(now)
    there = midnight.astimezone(LOS_ANGELES)
    just_before = (midnight - timedelta(microseconds=1)).astimezone(LOS_ANGELES)
    assert midnight > now
    assert (there.hour, there.minute, there.second, there.microsecond) == (0, 0, 0, 0)
    assert just_before.date() == now.astimezone(LOS_ANGELES).date() == there.date() - timedelta(days=1)


@given(MOMENTS)
def test_every_moment_of_a_day_waits_for_the_same_midnight(now: datetime) -> None:
    midnight = next_los_angeles_midnight(now)
    assert next_los_angeles_midnight(midnight - timedelta(microseconds=1)) == midnight


@given(MOMENTS)
def test_days_last_24_hours_but_for_the_two_that_change_the_clocks(now: datetime) -> None:
    midnight = next_los_angeles_midnight(now)
    length = next_los_angeles_midnight(midnight) - midnight
    day = midnight.astimezone(LOS_ANGELES).date()
    expected = {_sunday(day.year, 3, 2): 23, _sunday(day.year, 11, 1): 25}.get(day, 24)
    assert length == timedelta(hours=expected)


@given(
    st.integers(2008, 2098),
    st.sampled_from([(3, 2), (11, 1)]),
    st.timedeltas(timedelta(0), timedelta(hours=22)),
)
def test_on_the_days_that_change_the_clocks_the_quota_comes_back_at_that_days_end(
    year: int, change: tuple[int, int], since_midnight: timedelta
) -> None:
    day = _sunday(year, *change)
    start = datetime(day.year, day.month, day.day, tzinfo=LOS_ANGELES).astimezone(UTC)
    end = next_los_angeles_midnight(start + since_midnight)
    assert end.astimezone(LOS_ANGELES).date() == day + timedelta(days=1)
    assert end - start == timedelta(hours=23 if change[0] == 3 else 25)


def _sunday(year: int, month: int, which: int) -> date:
    """Since 2007 the clocks of Los Angeles change on the second Sunday of March and the first of November."""
    first = date(year, month, 1)
    return first + timedelta(days=(6 - first.weekday()) % 7 + 7 * (which - 1))
