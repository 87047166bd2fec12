"""Brings a task to its end: when no shot is left, when somebody has cancelled it, when its time is up.

Everything is fenced, so that it may run anywhere at any time, and twice at once.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from google.cloud.firestore import DELETE_FIELD

from shared import events
from shared.adapters.cloud_tasks import Bell
from shared.adapters.firestore import Conflict, Document, Documents, Write
from shared.adapters.firestore_tasks import (
    cancel_shot,
    create_event,
    fail_shot,
    shots_of,
    task_path,
    update_task,
)
from shared.adapters.firestore_users import task_closed
from shared.clock import Clock
from shared.events import Event
from shared.ids import new_event_id
from shared.logs import Log
from shared.metrics import marks_of, task_metrics
from shared.task import Patience, Shot, Status, Task, final_status

_TRIES: Final = 8
DEADLINE: Final = "DEADLINE_EXCEEDED"
DEADLINE_MESSAGE: Final = "the task's time was up before the shot was done"

log = Log("complete")

_EVENT_OF: Final = {
    Status.COMPLETED: events.TASK_COMPLETED,
    Status.PARTIAL: events.TASK_COMPLETED,
    Status.FAILED: events.TASK_FAILED,
    Status.CANCELLED: events.TASK_CANCELLED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settler:
    documents: Documents
    bell: Bell
    patience: Patience
    clock: Clock
    rng: random.Random

    async def settle(self, task_id: str) -> str:
        """Does whatever the task needs to end, if it is to end; says what it is then."""
        for _ in range(_TRIES):
            # The task before its shots: a shot that is opened again changes the task, and the fence then holds.
            (document,) = await self.documents.get(task_path(task_id))
            if document is None:
                return "gone"
            task = Task.from_document(document.fields)
            if task.status.is_final:
                return task.status.value
            found = await shots_of(self.documents, task_id)
            shots = [Shot.from_document(shot.fields) for shot in found]
            open_shots = [
                (shot, at.version) for shot, at in zip(shots, found, strict=True) if not shot.status.is_final
            ]
            if not open_shots:
                ended = await self._end(task, document, shots)
                if ended is not None:
                    return ended.value
                continue
            now = self.clock.now()
            if task.cancelled_at is not None:
                await self._each(
                    [cancel_shot(task_id, shot.index, version, now=now) for shot, version in open_shots]
                )
            elif now >= task.deadline:
                busy = [
                    shot.claim.until
                    for shot, _ in open_shots
                    if shot.claim is not None and shot.claim.until > now
                ]
                await self._time_is_up(task, open_shots, now)
                if busy:
                    await self._look_again(task, document, max(busy))
                    return task.status.value
            else:
                await self._look_again(task, document, min(task.deadline, now + self.patience.task))
                return task.status.value
        return "contended"

    async def _time_is_up(self, task: Task, open_shots: Sequence[tuple[Shot, Any]], now: datetime) -> None:
        """Ends what nobody is working on; a picture that is being paid for may still arrive."""
        for shot, version in open_shots:
            if shot.claim is not None and shot.claim.until > now:
                continue
            last = f" (last error: {shot.errors[-1]['code']})" if shot.errors else ""
            error = {"code": DEADLINE, "message": DEADLINE_MESSAGE + last, "timestamp": now}
            event = self._event(
                task,
                events.IMAGE_FAILED,
                {"index": shot.index, "error": {"code": DEADLINE, "message": error["message"]}},
                now,
            )
            try:
                await self.documents.commit(
                    fail_shot(task.task_id, shot.index, version, error=error),
                    create_event(event, patience=self.patience),
                )
            except Conflict:
                continue
            await self.bell.ring([self.bell.events(task.task_id, [event])])
            log.warning("shot.failed", task_id=task.task_id, index=shot.index, code=DEADLINE)

    async def _each(self, writes: Sequence[Write]) -> None:
        """All in one Commit; if one of them comes too late, each on its own."""
        try:
            await self.documents.commit(*writes)
        except Conflict:
            for write in writes:
                try:
                    await self.documents.commit(write)
                except Conflict:
                    continue

    async def _look_again(self, task: Task, document: Document, at: datetime) -> None:
        try:
            await self.documents.commit(update_task(task.task_id, {"checkAt": at}, document.version))
        except Conflict:
            return

    async def _end(self, task: Task, document: Document, shots: Sequence[Shot]) -> Status | None:
        """One fenced Commit ends the task, with the one event that tells of it. None when somebody else changed it."""
        if len(shots) < task.total:
            raise ValueError(f"task {task.task_id} has {len(shots)} of {task.total} shots")
        completed = sum(shot.status is Status.COMPLETED for shot in shots)
        cancelled = sum(shot.status is Status.CANCELLED for shot in shots)
        counts = {
            "total": task.total,
            "completed": completed,
            "failed": task.total - completed - cancelled,
            "cancelled": cancelled,
        }
        status = final_status(total=task.total, completed=completed, cancelled=cancelled)
        now = self.clock.now()
        metrics = task_metrics(task, shots, now=now)
        payload = {"status": status.value, **counts, "metrics": metrics, **_reason(task, shots)}
        event = self._event(task, _EVENT_OF[status], payload, now)
        fields = {
            "status": status.value,
            "finished": counts,
            "metrics": metrics,
            "retryCount": metrics["retryCount"],
            "checkAt": DELETE_FIELD,
            "counted": False,
            "updatedAt": now,
            **marks_of(shots),
        }
        writes = [
            update_task(task.task_id, fields, document.version),
            create_event(event, patience=self.patience),
        ]
        if task.counted:
            writes.append(task_closed(task.user_id, now=now))
        try:
            await self.documents.commit(*writes)
        except Conflict:
            return None
        await self.bell.ring([self.bell.events(task.task_id, [event])])
        log.info("task.finished", task_id=task.task_id, status=status.value, metrics=metrics)
        return status

    def _event(self, task: Task, event_type: str, payload: dict[str, Any], now: datetime) -> Event:
        return Event(
            event_id=new_event_id(self.rng),
            event_type=event_type,
            task_id=task.task_id,
            trace_id=task.trace_id,
            timestamp=now,
            source="complete",
            payload=payload,
        )


def _reason(task: Task, shots: Sequence[Shot]) -> dict[str, Any]:
    """The error of the task itself, or that of the last shot that failed."""
    if task.errors:
        return {"error": {"code": task.errors[-1]["code"], "message": task.errors[-1]["message"]}}
    failed = [shot for shot in shots if shot.status is Status.FAILED and shot.errors]
    if not failed:
        return {}
    error = failed[-1].errors[-1]
    return {"error": {"code": error["code"], "message": error["message"]}}
