"""Cloud Tasks as the flow may fear it: every task at least once, in any order, late, twice; a name is taken once."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from google.api_core import exceptions as gexc

from tests.properties.virtual_clock import VirtualClock

_LONGEST_BACKOFF: Final = timedelta(seconds=60)


@dataclass(slots=True, kw_only=True)
class Held:
    number: int
    name: str
    url: str
    body: dict[str, Any]
    due: datetime
    failures: int = 0
    under_way: int = 0
    again: bool = False
    """To be delivered once more although it was answered."""

    @property
    def may_be_lost(self) -> bool:
        """What the sweep would miss; a further delivery to one subscriber is Cloud Tasks' own affair."""
        return "subscriber" not in self.body


class Wakes:
    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._names: set[str] = set()
        self._numbers = itertools.count()
        self.held: list[Held] = []

    def add(self, task: Any) -> None:
        if task.name in self._names:
            raise gexc.AlreadyExists("a task of this name was there")  # type: ignore[no-untyped-call]
        self._names.add(task.name)
        at = task.schedule_time
        now = self._clock.now()
        self.held.append(
            Held(
                number=next(self._numbers),
                name=task.name,
                url=task.http_request.url,
                body=json.loads(task.http_request.body),
                due=max(now, at.astimezone(now.tzinfo)) if at else now,
            )
        )

    def due(self) -> list[Held]:
        now = self._clock.now()
        return [held for held in self.held if held.due <= now and not held.under_way]

    def next_due(self) -> datetime | None:
        return min((held.due for held in self.held if not held.under_way), default=None)

    def answered(self, held: Held, *, ok: bool) -> None:
        held.under_way -= 1
        if held.under_way:
            return
        if ok and not held.again:
            self.held.remove(held)
            return
        held.again = False
        if not ok:
            held.failures += 1
            held.due = self._clock.now() + min(_LONGEST_BACKOFF, timedelta(seconds=2**held.failures))

    def lose(self, held: Held) -> None:
        self.held.remove(held)
