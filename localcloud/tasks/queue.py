"""What a queue promises about pace and retries: settings with Google's defaults and limits, and how long a
failed task waits."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import IntEnum

from localcloud.tasks.call import HttpTarget
from localcloud.tasks.errors import InvalidArgument

RETENTION = timedelta(days=31)
"""A task is deleted at this age, whether it ran or not."""


_SLOWEST_RATE = 1e-7
"""One task in four months: longer than any task lives, and no number that overflows when it is divided by."""


class QueueState(IntEnum):
    """The numbers are the wire's."""

    RUNNING = 1
    PAUSED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimits:
    max_dispatches_per_second: float = 500.0
    max_concurrent_dispatches: int = 1000

    def __post_init__(self) -> None:
        if self.max_dispatches_per_second < 0:
            raise InvalidArgument("RateLimits.maxDispatchesPerSecond cannot be negative.")
        if not self.max_dispatches_per_second <= 500:  # nor is NaN
            raise InvalidArgument("RateLimits.maxDispatchesPerSecond must be less than or equal to 500.")
        if self.max_dispatches_per_second < _SLOWEST_RATE:
            raise InvalidArgument(f"RateLimits.maxDispatchesPerSecond must be at least {_SLOWEST_RATE}.")
        if self.max_concurrent_dispatches < 0:
            raise InvalidArgument("RateLimits.maxConcurrentDispatches cannot be negative.")
        if self.max_concurrent_dispatches > 5000:
            raise InvalidArgument("RateLimits.maxConcurrentDispatches must be less than or equal to 5000.")

    @property
    def max_burst_size(self) -> int:
        """Google chooses it from the rate and tells no formula: 10 at 1/s and 100 at 500/s have been seen."""
        return min(100, max(10, math.ceil(self.max_dispatches_per_second)))


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryConfig:
    max_attempts: int = 100
    """-1: as many as it takes."""
    max_retry_duration: timedelta = timedelta(0)
    """From the first attempt on; zero: no limit."""
    min_backoff: timedelta = timedelta(milliseconds=100)
    max_backoff: timedelta = timedelta(hours=1)
    max_doublings: int = 16

    def __post_init__(self) -> None:
        if self.max_attempts < -1:
            raise InvalidArgument("RetryConfig.maxAttempts must be greater or equal to -1.")
        if self.max_retry_duration < timedelta(0):
            raise InvalidArgument("RetryConfig.maxRetryDuration cannot be negative.")
        if self.min_backoff < timedelta(0):
            raise InvalidArgument("RetryConfig.minBackoff cannot be negative.")
        if self.max_backoff < timedelta(0):
            raise InvalidArgument("RetryConfig.maxBackoff cannot be negative.")
        if self.min_backoff > self.max_backoff:
            raise InvalidArgument(
                "RetryConfig.minBackoff must be less than or equal to RetryConfig.maxBackoff."
            )
        if self.max_doublings < 0:
            raise InvalidArgument("RetryConfig.maxDoublings cannot be negative.")

    def backoff(self, retry: int) -> timedelta:
        """The wait before the given retry (1 is the first): doubling, then straight on, then level."""
        doublings = min(retry - 1, self.max_doublings)
        steps_after = retry - 1 - doublings
        # 2**64 already exceeds any max_backoff: a larger power would only cost memory.
        interval = self.min_backoff.total_seconds() * 2 ** min(doublings, 64) * (1 + steps_after)
        # A wait that outlives the task is as good as the longest one, and a date that far off overflows.
        longest = min(self.max_backoff, 2 * RETENTION).total_seconds()
        return timedelta(seconds=min(interval, longest))

    def is_exhausted(self, *, attempts: int, first_attempt: datetime, now: datetime) -> bool:
        """Both limits must be reached, of those that are set; with none set only old age ends a task."""
        limited_attempts = self.max_attempts != -1
        limited_time = self.max_retry_duration > timedelta(0)
        if not limited_attempts and not limited_time:
            return False
        attempts_reached = not limited_attempts or attempts >= self.max_attempts
        time_reached = not limited_time or now - first_attempt >= self.max_retry_duration
        return attempts_reached and time_reached


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    name: str
    rate_limits: RateLimits = field(default_factory=RateLimits)
    retry_config: RetryConfig = field(default_factory=RetryConfig)
    state: QueueState = QueueState.RUNNING
    purge_time: datetime | None = None
    log_sampling_ratio: float | None = None
    http_target: HttpTarget | None = None

    def __post_init__(self) -> None:
        ratio = self.log_sampling_ratio
        if ratio is not None and not 0 <= ratio <= 1:
            raise InvalidArgument("StackdriverLoggingConfig.samplingRatio must be between 0.0 and 1.0.")
