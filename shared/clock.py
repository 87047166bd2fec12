"""Where time, waiting and randomness come from: an argument, so that everything can run on virtual time."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """The present moment, in UTC."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def unix_ms(moment: datetime) -> int:
    return (moment - from_unix_ms(0)) // timedelta(milliseconds=1)


def from_unix_ms(value: int) -> datetime:
    return datetime.fromtimestamp(value / 1000, UTC)


def system_random() -> random.Random:
    return random.SystemRandom()
