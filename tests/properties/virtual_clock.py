"""Time that passes only when somebody says so: whoever sleeps is parked until the driver moves the hands."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from datetime import UTC, datetime, timedelta
from typing import Final

MORNING: Final = datetime(2025, 10, 13, 1, 0, tzinfo=UTC)
"""Where every world begins; a day with a Los Angeles midnight and a Shanghai midnight ahead."""


class VirtualClock:
    """A `shared.clock.Clock`."""

    def __init__(self, start: datetime = MORNING) -> None:
        self._now = start
        self._sleepers: list[tuple[datetime, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def now(self) -> datetime:
        return self._now

    async def sleep(self, seconds: float) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        at = self._now + timedelta(seconds=max(0.0, seconds))
        heapq.heappush(self._sleepers, (at, next(self._order), done))
        await done

    def next_alarm(self) -> datetime | None:
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else None

    def advance(self, to: datetime) -> None:
        """Everybody whose time has come by then wakes, in the order of their times."""
        self._now = max(self._now, to)
        while self._sleepers and self._sleepers[0][0] <= self._now:
            _, _, done = heapq.heappop(self._sleepers)
            if not done.done():
                done.set_result(None)


async def until_idle() -> None:
    """Lets the loop run until nothing but the caller could go on by itself."""
    ready = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]
    await asyncio.sleep(0)
    while ready:
        await asyncio.sleep(0)
