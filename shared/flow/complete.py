"""After a fact: tell the subscribers, and look whether that was the last shot.

Each subscriber is tried once here, on its own; one that fails gets a Cloud Task of its own in the `events` queue,
whose retries harm nobody else. The end of the task doesn't wait for any of them.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final

from shared import events
from shared.adapters.cloud_tasks import Bell, Wake
from shared.adapters.firestore import Conflict, Documents, Write
from shared.adapters.firestore_tasks import (
    DEAD,
    DELIVERED,
    RETRYING,
    event_path,
    event_published,
    event_published_in_part,
    event_tried,
    tally,
    task_path,
)
from shared.clock import Clock
from shared.events import Event, read_envelope
from shared.flow.settle import Settler
from shared.logs import Log
from shared.task import Task

TRIED_FOR: Final = timedelta(hours=36)
"""After that an event that nobody took is a dead letter: `python -m shared.admin callbacks list|redrive`."""
_FIRST_RETRY: Final = timedelta(seconds=2)
_KNOWN_TASKS: Final = 512
_RECORD_TRIES: Final = 5

log = Log("complete")


class NotDelivered(Exception):
    """A subscriber did not take an event; Cloud Tasks tries again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """An event with what a subscriber wants to know about its task."""

    event: Event
    task: Task
    """Only what never changes about it."""
    completed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    detail: dict[str, Any] = field(default_factory=dict)
    """What is worth keeping about the delivery."""
    writes: Sequence[Write] = ()
    """What the subscriber keeps in Firestore, written together with the record of the delivery."""


Subscriber = Callable[[News], Awaitable[Delivered]]
"""Delivers one event, or raises `NotDelivered`."""
Deliveries = dict[str, dict[str, dict[str, Any]]]
"""Event id → subscriber → how its try went."""


class Desk:
    def __init__(
        self,
        *,
        documents: Documents,
        bell: Bell,
        settler: Settler,
        subscribers: Mapping[str, Subscriber],
        clock: Clock,
    ) -> None:
        self._documents = documents
        self._bell = bell
        self._settler = settler
        self._subscribers = subscribers
        self._clock = clock
        self._known: OrderedDict[str, Task] = OrderedDict()
        self._settling: set[str] = set()

    async def tell(self, task_id: str, told: Sequence[Event]) -> None:
        """Publishes events and, if one of them is about a shot, looks whether the task is finished."""
        task = await self._task(task_id)
        if task is None:
            return
        about_shots = any(event.event_type in events.SHOT_TYPES for event in told)
        finished, completed = await tally(self._documents, task_id) if about_shots else (0, 0)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._publish(task, told, completed))
            if about_shots and finished >= task.total:
                group.create_task(self._settle_once(task_id))

    async def _settle_once(self, task_id: str) -> None:
        """The last shots of a task often end together: one look at the task is enough for all of them."""
        if task_id in self._settling:
            return
        self._settling.add(task_id)
        try:
            await self._settler.settle(task_id)
        finally:
            self._settling.discard(task_id)

    async def look_and_tell(self, task_id: str, event_ids: Sequence[str]) -> None:
        """The same for events of which it isn't known whether they were published."""
        found = await self._documents.get(*(event_path(event_id) for event_id in event_ids))
        told = [
            read_envelope(document.fields)
            for document in found
            if document is not None and document.fields.get("publishedAt") is None
        ]
        if told:
            await self.tell(task_id, told)

    async def deliver(self, task_id: str, event_id: str, subscriber: str) -> None:
        """A further try for one subscriber; raises `NotDelivered` so that Cloud Tasks tries again."""
        (document,) = await self._documents.get(event_path(event_id))
        task = await self._task(task_id)
        if task is None or document is None or subscriber not in self._subscribers:
            return
        if document.fields.get("deliveries", {}).get(subscriber, {}).get("state") == DELIVERED:
            return
        event = read_envelope(document.fields)
        _, completed = await tally(self._documents, task_id)
        outcome, writes = await self._try(subscriber, News(event=event, task=task, completed=completed))
        if outcome["state"] == RETRYING and self._clock.now() - event.timestamp > TRIED_FOR:
            outcome["state"] = DEAD
            log.error("delivery.dead", subscriber=subscriber, task_id=task_id, event_id=event_id, **outcome)
        is_retrying = outcome["state"] == RETRYING
        version = None if outcome["state"] == DELIVERED else document.version
        tried = event_tried(event_id, subscriber, version, now=self._clock.now(), outcome=outcome)
        try:
            await self._documents.commit(tried, *writes)
        except Conflict:
            # Somebody else has tried meanwhile; the next try looks at how that went.
            is_retrying = version is not None
        if is_retrying:
            raise NotDelivered(str(outcome["reason"]))

    async def _task(self, task_id: str) -> Task | None:
        """What never changes about a task; remembered, because its shots come one after the other."""
        if task_id in self._known:
            self._known.move_to_end(task_id)
            return self._known[task_id]
        (document,) = await self._documents.get(task_path(task_id))
        if document is None:
            return None
        task = replace(Task.from_document(document.fields), prompts={}, sources=(), errors=())
        self._known[task_id] = task
        while len(self._known) > _KNOWN_TASKS:
            self._known.popitem(last=False)
        return task

    async def _publish(self, task: Task, told: Sequence[Event], completed: int) -> None:
        """One try for each subscriber of each event, then one Commit that says how it went."""
        jobs = [
            (event, name)
            for event in told
            for name in events.subscribers_of(event.event_type)
            if name in self._subscribers
        ]
        outcomes = await asyncio.gather(
            *(self._try(name, News(event=event, task=task, completed=completed)) for event, name in jobs)
        )
        now = self._clock.now()
        deliveries: Deliveries = {event.event_id: {} for event in told}
        again: list[Wake] = []
        writes: list[Write] = []
        for (event, name), (outcome, more) in zip(jobs, outcomes, strict=True):
            deliveries[event.event_id][name] = {**outcome, "at": now, "tries": 1}
            writes += more
            if outcome["state"] != DELIVERED:
                again.append(
                    self._bell.delivery(
                        task.task_id, event.event_id, name, trace_id=task.trace_id, at=now + _FIRST_RETRY
                    )
                )
        await self._bell.ring(again)
        if again:
            await self._record_failures(deliveries, writes)
            return
        try:
            await self._documents.commit(
                *(event_published(event_id, now=now, deliveries=how) for event_id, how in deliveries.items()),
                *writes,
            )
        except Conflict:
            # The events have expired meanwhile: told they are, and nobody will ask for the record.
            log.warning("events.gone", task_id=task.task_id)

    async def _record_failures(self, deliveries: Deliveries, writes: Sequence[Write]) -> None:
        """With a look at what is known already: these events may be told for the second time, and the task that
        delivers them again may have done so."""
        for tries in range(1, _RECORD_TRIES + 1):
            found = await self._documents.get(*(event_path(event_id) for event_id in deliveries))
            now = self._clock.now()
            records = [
                event_published_in_part(event, now=now, deliveries=deliveries[event.id])
                for event in found
                if event is not None
            ]
            try:
                await self._documents.commit(*records, *writes)
            except Conflict:
                if tries == _RECORD_TRIES:
                    raise
            else:
                return

    async def _try(self, name: str, news: News) -> tuple[dict[str, Any], Sequence[Write]]:
        try:
            delivered = await self._subscribers[name](news)
        except NotDelivered as error:
            log.warning(
                "delivery.failed",
                subscriber=name,
                event_type=news.event.event_type,
                task_id=news.task.task_id,
                reason=str(error),
            )
            return {"state": RETRYING, "reason": str(error)}, ()
        return {"state": DELIVERED, "reason": None, **delivered.detail}, delivered.writes
