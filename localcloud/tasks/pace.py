"""How fast a queue may go right now: a token bucket, slowed down while the worker is overloaded."""

from __future__ import annotations

from datetime import datetime

from localcloud.tasks.queue import RateLimits

_SLOWEST = 1 / 64
_SLOWEST_FOR_ERRORS = 1 / 8
_SAMPLE = 50
"""How many answers in a row are looked at for their errors."""
_MANY_ERRORS = 40
_RECOVERY_SECONDS = 5.0
"""How long a slowed-down queue takes to double its pace again."""
_ALMOST = 1e-6
"""Clocks count microseconds, so a token may be a rounding error short of whole."""


class Pace:
    """Tokens come at the queue's rate times a slow-down factor, up to the burst size."""

    def __init__(self, limits: RateLimits, now: datetime) -> None:
        self._limits = limits
        self._tokens = float(limits.max_burst_size)
        self._factor = 1.0
        self._at = now
        self._answers = 0
        self._errors = 0

    def change(self, limits: RateLimits, now: datetime) -> None:
        self._advance(now)
        self._limits = limits
        self._tokens = min(self._tokens, float(limits.max_burst_size))

    def wait(self, now: datetime) -> float:
        """Seconds until there is a token; 0 when there is one."""
        self._advance(now)
        missing = 1.0 - self._tokens
        if missing <= _ALMOST:
            return 0.0
        return missing / (self._limits.max_dispatches_per_second * self._factor)

    def take(self) -> None:
        self._tokens = max(0.0, self._tokens - 1.0)

    def answered(self, now: datetime, *, failed: bool, overloaded: bool) -> None:
        """Half the pace after a 429 or 503, and after a run of answers that were nearly all errors."""
        if overloaded:
            self._slow_down(now, _SLOWEST)
        self._answers += 1
        self._errors += failed
        if self._answers < _SAMPLE:
            return
        if self._errors >= _MANY_ERRORS:
            self._slow_down(now, _SLOWEST_FOR_ERRORS)
        self._answers = self._errors = 0

    def _slow_down(self, now: datetime, slowest: float) -> None:
        """No burst may hide it either."""
        self._advance(now)
        self._factor = min(self._factor, max(slowest, self._factor / 2))
        self._tokens = min(self._tokens, self._limits.max_burst_size * self._factor)

    def _advance(self, now: datetime) -> None:
        elapsed = (now - self._at).total_seconds()
        if elapsed <= 0:
            return
        self._at = now
        rate = self._limits.max_dispatches_per_second * self._factor
        self._tokens = min(float(self._limits.max_burst_size), self._tokens + elapsed * rate)
        if self._factor < 1.0:
            self._factor = min(1.0, self._factor * 2 ** min(elapsed / _RECOVERY_SECONDS, 16))
