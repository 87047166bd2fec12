"""Follows the events of a task: a list to catch up with, and a live stream for whoever keeps the line open.

Events of different processes may become visible a little out of the order of their times. A stream therefore looks back
a few seconds at every look, and remembers what it has shown; one that is resumed may repeat those last seconds.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from shared.adapters.firestore import Documents
from shared.adapters.firestore_tasks import events_of, task_path
from shared.clock import Clock, from_unix_ms
from shared.events import Event, read_envelope
from shared.problems import Problem

MOST: Final = 200
LOOK_SECONDS: Final = 1.0
_LOOK_BACK: Final = timedelta(seconds=5)
_KEEP_ALIVE: Final = 15
"""Looks without news after which a comment is sent, so that nobody in between closes the line."""
_LONGEST: Final = timedelta(minutes=14)
"""A function's request ends after a while: the client then comes back with its Last-Event-ID."""
_CURSOR: Final = re.compile(r"(\d{1,15})-([0-9a-f-]{36})")


def cursor_of(event: Event) -> str:
    return f"{event.envelope()['timestamp']}-{event.event_id}"


def read_cursor(text: str | None) -> tuple[datetime, str] | None:
    if not text:
        return None
    match = _CURSOR.fullmatch(text)
    if match is None:
        raise Problem("INVALID_REQUEST", "after 无效 / this position is not one of ours")
    return from_unix_ms(int(match[1])), match[2]


@dataclass(slots=True, kw_only=True)
class Follower:
    documents: Documents
    clock: Clock
    most_streams: int
    _streams: int = field(default=0, init=False)

    async def page(self, task_id: str, after: str | None) -> dict[str, Any]:
        """The events after a position, oldest first, and the position to go on from."""
        position = read_cursor(after)
        found = await events_of(
            self.documents, task_id, since=position[0] if position else None, most=MOST + 1
        )
        told = sorted((read_envelope(document.fields) for document in found), key=_order)
        if position is not None:
            told = [event for event in told if _order(event) > (position[0], position[1])]
        shown = told[:MOST]
        page: dict[str, Any] = {"events": [event.envelope() for event in shown]}
        if shown:
            page["next"] = cursor_of(shown[-1])
        return page

    def stream(self, task_id: str, last: str | None) -> AsyncIterator[str]:
        """Server-sent events; refuses when too many lines are open."""
        position = read_cursor(last)
        if self._streams >= self.most_streams:
            raise Problem("TOO_MANY_STREAMS", retry_after=5)
        return self._lines(task_id, position)

    async def _lines(self, task_id: str, position: tuple[datetime, str] | None) -> AsyncIterator[str]:
        self._streams += 1
        try:
            begun = self.clock.now()
            since = position[0] - _LOOK_BACK if position else None
            shown: set[str] = {position[1]} if position else set()
            quiet = 0
            yield "retry: 2000\n\n"
            while self.clock.now() - begun < _LONGEST:
                found = await events_of(self.documents, task_id, since=since, most=MOST)
                told = sorted((read_envelope(document.fields) for document in found), key=_order)
                fresh = [event for event in told if event.event_id not in shown]
                for event in fresh:
                    shown.add(event.event_id)
                    yield _sse(event)
                if told:
                    since = max(since or told[-1].timestamp, told[-1].timestamp - _LOOK_BACK)
                if not fresh and await self._is_over(task_id):
                    yield "event: end\ndata: {}\n\n"
                    return
                quiet = 0 if fresh else quiet + 1
                if quiet >= _KEEP_ALIVE:
                    quiet = 0
                    yield ": still here\n\n"
                await self.clock.sleep(LOOK_SECONDS)
        finally:
            self._streams -= 1

    async def _is_over(self, task_id: str) -> bool:
        (document,) = await self.documents.get(task_path(task_id))
        return document is None or document.fields.get("finished") is not None


def _order(event: Event) -> tuple[datetime, str]:
    return event.timestamp, event.event_id


def _sse(event: Event) -> str:
    data = json.dumps(event.envelope(), ensure_ascii=False, separators=(",", ":"))
    return f"id: {cursor_of(event)}\nevent: {event.event_type}\ndata: {data}\n\n"
