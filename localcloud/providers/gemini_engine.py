"""What the Gemini API counts and refuses: keys, calls in flight per key, and the quotas of the projects
behind them.

No HTTP here. The counting is the referee of the whole system: that no key ever has more calls in flight
than it may is read from `stats`, so a call is counted from its first byte until just before its answer
leaves (or its caller hangs up), and one that comes over the limit still shows in the maximum.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from localcloud.providers.gemini_errors import (
    ApiError,
    concurrent,
    exhausted,
    key_invalid,
    per_day,
    per_minute,
)
from shared.clock import Clock

PACIFIC = ZoneInfo("America/Los_Angeles")
MINUTE = timedelta(seconds=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySpec:
    """One API key, as the provider knows it."""

    key: str = field(repr=False)
    id: str
    max_concurrent: int = 3
    project: str = "project"
    """The quota domain: keys of one project share its quotas."""
    per_minute: int | None = None
    per_day: int | None = None


@dataclass(slots=True, kw_only=True)
class Call:
    """One call in flight. `outcome` is what is counted at its end: `ok`, an error code or word, or `gone`."""

    key: KeySpec
    started: datetime
    outcome: str = "gone"


class Tally:
    """The counts of one key, or of all."""

    def __init__(self) -> None:
        self.calls = 0
        self.outcomes: Counter[str] = Counter()
        self.highest = 0
        self.busy = timedelta()
        self.first_start: datetime | None = None
        self.last_end: datetime | None = None
        self.running: dict[int, Call] = {}

    def begin(self, call: Call) -> None:
        self.calls += 1
        self.running[id(call)] = call
        self.highest = max(self.highest, len(self.running))
        self.first_start = self.first_start or call.started

    def end(self, call: Call, now: datetime) -> None:
        if self.running.pop(id(call), None) is None:
            return
        self.outcomes[call.outcome] += 1
        self.busy += now - call.started
        self.last_end = now

    def renewed(self, now: datetime) -> Tally:
        """With the past forgotten; calls in flight go on being counted, from now."""
        tally = Tally()
        for call in self.running.values():
            call.started = now
            tally.begin(call)
        return tally

    def shown(self, now: datetime) -> dict[str, Any]:
        errors = {word: count for word, count in self.outcomes.items() if word not in ("ok", "gone")}
        busy = self.busy + sum((now - call.started for call in self.running.values()), timedelta())
        return {
            "calls": self.calls,
            "ok": self.outcomes["ok"],
            "errors": errors,
            "gone": self.outcomes["gone"],
            "concurrency": len(self.running),
            "maxConcurrency": self.highest,
            "busySeconds": round(busy.total_seconds(), 6),
            "firstStart": self.first_start.isoformat() if self.first_start else None,
            "lastEnd": self.last_end.isoformat() if self.last_end else None,
        }


class GeminiEngine:
    def __init__(self, keys: Iterable[KeySpec], *, clock: Clock) -> None:
        self._clock = clock
        self._keys = {spec.key: spec for spec in keys}
        self._tallies = {spec.id: Tally() for spec in self._keys.values()}
        self._total = Tally()
        self._unknown = 0
        self._minute: defaultdict[tuple[str, str], deque[datetime]] = defaultdict(deque)
        self._day: Counter[tuple[str, str, date]] = Counter()

    def key(self, secret: str) -> KeySpec:
        spec = self._keys.get(secret)
        if spec is None:
            self._unknown += 1
            raise key_invalid()
        return spec

    @contextmanager
    def call(self, key: KeySpec) -> Iterator[Call]:
        """Counted as in flight inside this block."""
        call = Call(key=key, started=self._clock.now())
        self._total.begin(call)
        self._tallies[key.id].begin(call)
        try:
            yield call
        except ApiError as error:
            call.outcome = str(error.code)
            raise
        finally:
            now = self._clock.now()
            self._tallies[key.id].end(call, now)
            self._total.end(call, now)

    def check_concurrency(self, key: KeySpec, model: str) -> None:
        if len(self._tallies[key.id].running) > key.max_concurrent:
            raise exhausted(concurrent(key.max_concurrent, model))

    def spend(self, key: KeySpec, model: str) -> None:
        """Take one request from the project's quotas, or raise."""
        now = self._clock.now()
        today = (key.project, model, now.astimezone(PACIFIC).date())
        recent = self._minute[key.project, model]
        while recent and now - recent[0] >= MINUTE:
            recent.popleft()
        if key.per_day is not None and self._day[today] >= key.per_day:
            # Google's delay is of the minute's window even here, where nothing comes back before midnight.
            raise exhausted(per_day(key.per_day, model, 60 - now.second))
        if key.per_minute is not None and len(recent) >= key.per_minute:
            wait = (MINUTE - (now - recent[0])).total_seconds()
            raise exhausted(per_minute(key.per_minute, model, wait + 1))
        recent.append(now)
        self._day[today] += 1

    def stats(self) -> dict[str, Any]:
        now = self._clock.now()
        limits = {spec.id: spec for spec in self._keys.values()}
        return {
            "total": self._total.shown(now),
            "unknownKey": self._unknown,
            "keys": {
                key_id: {
                    **tally.shown(now),
                    "maxConcurrent": limits[key_id].max_concurrent,
                    "project": limits[key_id].project,
                }
                for key_id, tally in self._tallies.items()
            },
        }

    def reset_stats(self) -> None:
        now = self._clock.now()
        self._unknown = 0
        self._total = self._total.renewed(now)
        self._tallies = {key_id: tally.renewed(now) for key_id, tally in self._tallies.items()}
