"""After a fact: tell the subscribers, and finish the task when none of its shots is left.

Each subscriber is tried once here, on its own; one that fails gets a Cloud Task of its own in the `events` queue, whose
retries harm nobody else. The fan-in doesn't wait for any of them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from google.cloud.firestore import DELETE_FIELD

from shared import events
from shared.adapters.cloud_tasks import Bell
from shared.adapters.firestore import Conflict, Document, Documents
from shared.adapters.firestore_tasks import (
    create_event,
    event_path,
    event_published,
    read_event,
    shots_of,
    tally,
    task_path,
    update_task,
)
from shared.clock import Clock
from shared.events import Event
from shared.ids import new_event_id
from shared.logs import Log
from shared.metrics import marks_of, task_metrics
from shared.task import Shot, Status, Task, final_status

_FIRST_RETRY: Final = timedelta(seconds=2)

log = Log("complete")


class NotDelivered(Exception):
    """A subscriber did not take an event; Cloud Tasks tries again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """An event with what a subscriber wants to know about its task."""

    event: Event
    task: Task
    completed: int


Subscriber = Callable[[News], Awaitable[dict[str, Any]]]
"""Delivers one event and returns what is worth keeping about it; raises `NotDelivered`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    documents: Documents
    bell: Bell
    subscribers: Mapping[str, Subscriber]
    keep: timedelta
    clock: Clock
    rng: random.Random

    async def tell(self, task_id: str, event_ids: Sequence[str]) -> None:
        """Publishes events and, if one of them is about a shot, looks whether the task is finished."""
        task_document, *found = await self.documents.get(
            task_path(task_id), *(event_path(event_id) for event_id in event_ids)
        )
        if task_document is None:
            return
        task = Task.from_document(task_document.fields)
        fresh = [
            read_event(document)
            for document in found
            if document is not None and document.fields.get("publishedAt") is None
        ]
        about_shots = any(
            document is not None and document.fields["eventType"] in events.SHOT_TYPES for document in found
        )
        finished, completed = await self._count(task, about_shots)
        final_event: Event | None = None
        async with asyncio.TaskGroup() as group:
            if about_shots and finished == task.total and not task.status.is_final:
                finishing = group.create_task(self.finish(task_document))
            else:
                finishing = None
            group.create_task(self._publish(task, fresh, completed))
        if finishing is not None:
            final_event = finishing.result()
        if final_event is not None:
            await self.bell.ring([self.bell.events(task_id, [final_event.event_id], trace_id=task.trace_id)])

    async def deliver(self, task_id: str, event_id: str, subscriber: str) -> None:
        """A further try for one subscriber; raises `NotDelivered` so that Cloud Tasks tries again."""
        task_document, document = await self.documents.get(task_path(task_id), event_path(event_id))
        if task_document is None or document is None or subscriber not in self.subscribers:
            return
        if document.fields.get("deliveries", {}).get(subscriber, {}).get("state") == "delivered":
            return
        task = Task.from_document(task_document.fields)
        _, completed = await self._count(task, True)
        news = News(event=read_event(document), task=task, completed=completed)
        outcome = await self.subscribers[subscriber](news)
        await self.documents.commit(
            event_published(
                event_id, now=self.clock.now(), deliveries={subscriber: {"state": "delivered", **outcome}}
            )
        )

    async def _count(self, task: Task, needed: bool) -> tuple[int, int]:
        if task.finished is not None:
            return task.total, task.finished["completed"]
        return await tally(self.documents, task.task_id) if needed else (0, 0)

    async def _publish(self, task: Task, fresh: Sequence[Event], completed: int) -> None:
        """One try for each subscriber of each event, then one Commit that says how it went."""
        if not fresh:
            return
        jobs = [
            (event, name, News(event=event, task=task, completed=completed))
            for event in fresh
            for name in events.subscribers_of(event.event_type)
            if name in self.subscribers
        ]
        outcomes = await asyncio.gather(*(self._try(name, news) for _, name, news in jobs))
        now = self.clock.now()
        deliveries: dict[str, dict[str, dict[str, Any]]] = {event.event_id: {} for event in fresh}
        again = []
        for (event, name, _), outcome in zip(jobs, outcomes, strict=True):
            deliveries[event.event_id][name] = {"at": now, **outcome}
            if outcome["state"] != "delivered":
                again.append(
                    self.bell.delivery(
                        task.task_id, event.event_id, name, trace_id=task.trace_id, at=now + _FIRST_RETRY
                    )
                )
        await self.bell.ring(again)
        await self.documents.commit(
            *(
                event_published(event_id, now=now, deliveries=states)
                for event_id, states in deliveries.items()
            )
        )

    async def _try(self, name: str, news: News) -> dict[str, Any]:
        try:
            return {"state": "delivered", **await self.subscribers[name](news)}
        except NotDelivered as error:
            log.warning(
                "delivery.failed",
                subscriber=name,
                event_type=news.event.event_type,
                task_id=news.task.task_id,
                reason=str(error),
            )
            return {"state": "retrying", "reason": str(error)}

    async def finish(self, document: Document) -> Event | None:
        """All shots are final: so is the task, in one fenced Commit. None when somebody else did it."""
        task = Task.from_document(document.fields)
        shots = [Shot.from_document(shot.fields) for shot in await shots_of(self.documents, task.task_id)]
        if len(shots) < task.total or not all(shot.status.is_final for shot in shots):
            return None
        completed = sum(shot.status is Status.COMPLETED for shot in shots)
        cancelled = sum(shot.status is Status.CANCELLED for shot in shots)
        counts = {
            "total": task.total,
            "completed": completed,
            "failed": task.total - completed - cancelled,
            "cancelled": cancelled,
        }
        status = final_status(total=task.total, completed=completed)
        now = self.clock.now()
        metrics = task_metrics(task, shots, now=now)
        event = Event(
            event_id=new_event_id(self.rng),
            event_type=events.TASK_FAILED if status is Status.FAILED else events.TASK_COMPLETED,
            task_id=task.task_id,
            trace_id=task.trace_id,
            timestamp=now,
            source="complete",
            payload={"status": status.value, **counts, "metrics": metrics, **_last_error(shots)},
        )
        try:
            await self.documents.commit(
                update_task(
                    task.task_id,
                    {
                        "status": status.value,
                        "finished": counts,
                        "metrics": metrics,
                        "retryCount": metrics["retryCount"],
                        "checkAt": DELETE_FIELD,
                        "updatedAt": now,
                        **marks_of(shots),
                    },
                    document.version,
                ),
                create_event(event, keep=self.keep),
            )
        except Conflict:
            return None
        log.info("task.finished", task_id=task.task_id, status=status.value, metrics=metrics)
        return event


def _last_error(shots: Sequence[Shot]) -> dict[str, Any]:
    failed = [shot for shot in shots if shot.status is Status.FAILED and shot.errors]
    if not failed:
        return {}
    error = failed[-1].errors[-1]
    return {"error": {"code": error["code"], "message": error["message"]}}
