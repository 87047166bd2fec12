"""`explain TASK [INDEX]`: the life of a task or a shot as readable text, from what Firestore knows."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from shared.adapters.firestore import Document, Documents
from shared.adapters.firestore_tasks import events_of, shots_of, task_path
from shared.admin.report import Refused
from shared.clock import Clock, from_unix_ms
from shared.task import Shot, Status, Task

_NOTABLE_WAIT = timedelta(seconds=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explain:
    documents: Documents
    clock: Clock

    async def __call__(self, asked: argparse.Namespace) -> None:
        """Tell the life of a task, or of one of its shots."""
        (document,) = await self.documents.get(task_path(asked.task))
        if document is None:
            raise Refused(f"no task {asked.task}")
        task = Task.from_document(document.fields)
        shots = [Shot.from_document(shot.fields) for shot in await shots_of(self.documents, asked.task)]
        events = await events_of(self.documents, asked.task)
        if asked.index is None:
            lines = task_life(task, shots, events, now=self.clock.now())
        elif 0 <= asked.index < len(shots):
            lines = shot_life(task, shots[asked.index], now=self.clock.now())
        else:
            raise Refused(f"task {asked.task} has shots 0 to {len(shots) - 1}")
        for line in lines:
            print(line)


def task_life(task: Task, shots: list[Shot], events: list[Document], *, now: datetime) -> Iterator[str]:
    counts = {status: sum(shot.status is status for shot in shots) for status in Status}
    told = ", ".join(f"{n} {status.value}" for status, n in counts.items() if n)
    yield f"task {task.task_id}: {task.status.value} ({told}); trace {task.trace_id}"
    yield f"  {_at(task.created_at)}  accepted: {task.mode}, {task.total} shots, user {_short(task.user_id)}"
    started, prompted = task.marks.get("processingStartedAt"), task.marks.get("promptGeneratedAt")
    if started:
        yield f"  {_at(started)}  preparation began, {_after(task.created_at, started)} after the request"
    if prompted:
        yield f"  {_at(prompted)}  prepared: {len(task.sources)} sources, poses from {task.plan.director}"
    for error in task.errors:
        yield f"  {_at(error['timestamp'])}  not prepared: {error['code']}: {error['message']}"
    if task.cancelled_at:
        yield f"  {_at(task.cancelled_at)}  cancelled by its user"
    for shot in shots:
        yield f"  shot {shot.index}: {shot.status.value}{_summary(shot)}"
    if not task.status.is_final:
        yield f"  still open; its time is up at {_at(task.deadline)}, in {_after(now, task.deadline)}"
    for document in events:
        yield from _deliveries(document)
    if task.metrics:
        yield "  metrics: " + ", ".join(f"{k}={v}" for k, v in task.metrics.items() if k != "taskId")


def shot_life(task: Task, shot: Shot, *, now: datetime) -> Iterator[str]:
    yield f"shot {shot.index} of task {task.task_id}: {shot.status.value}{_summary(shot)}"
    yield f"  {_at(task.created_at)}  accepted"
    previous = task.marks.get("promptGeneratedAt") or task.created_at
    if previous > task.created_at:
        yield f"  {_at(previous)}  its task was prepared"
    for step in shot.life:
        at: datetime = step["at"]
        if step["step"] == "claimed" and at - previous > _NOTABLE_WAIT:
            yield f"  {'':23}  … waited {_after(previous, at)} for a free slot"
        yield f"  {_at(at)}  {_told(step, shot)}"
        previous = max(at, step.get("until") or at)
    if shot.claim is not None:
        yield f"  being drawn with {shot.claim.key_id}; taken over by another if not done at {_at(shot.claim.until)}"
    elif not shot.status.is_final:
        due = shot.due_at or task.created_at
        yield f"  waiting{f' until {_at(due)}' if due > now else ' for a free slot'}"


def _told(step: dict[str, Any], shot: Shot) -> str:
    match step["step"]:
        case "claimed":
            return f"drawing with key {step['key']}"
        case "put_back":
            reason = _message(shot, step)
            return f"{step['code']} from {step['key']}: {reason}; tried again at {_at(step['until'])}"
        case "failed":
            return f"failed with {step['code']}: {_message(shot, step)}"
        case "stored":
            return "drawn and stored"
        case "stashed":
            return f"drawn, but storage does not take it: {step['reason']}; the picture is kept until it does"
        case "from_cache":
            return "given from the cache"
        case "swept":
            return "found by the sweep and woken again"
        case "asked_again":
            return "asked for again"
        case other:
            return str(other)


def _message(shot: Shot, step: dict[str, Any]) -> str:
    found = [error["message"] for error in shot.errors if error["timestamp"] == step["at"]]
    return str(found[0]) if found else "no message"


def _summary(shot: Shot) -> str:
    keys = f", keys {', '.join(shot.keys_used)}" if shot.keys_used else ""
    last = f", last error {shot.errors[-1]['code']}" if shot.errors else ""
    return f", {shot.attempts} attempts{keys}{last}"


def _deliveries(document: Document) -> Iterator[str]:
    d = document.fields
    for name, delivery in sorted(d.get("deliveries", {}).items()):
        if delivery.get("state") == "delivered" and delivery.get("tries", 1) == 1:
            continue
        answer = f": {delivery['reason']}" if delivery.get("reason") else ""
        tries = delivery.get("tries", 1)
        when = _at(from_unix_ms(d["timestamp"]))
        yield f"  {when}  {d['eventType']} for {name}: {delivery['state']} after {tries} tries{answer}"
    if d.get("publishedAt") is None:
        yield f"  {_at(from_unix_ms(d['timestamp']))}  {d['eventType']}: not published yet"


def _at(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03d}"


def _after(start: datetime, end: datetime) -> str:
    return f"{(end - start).total_seconds():.1f} s"


def _short(user_id: str) -> str:
    """Enough to recognise a user by, not enough to be one."""
    return user_id if len(user_id) <= 6 else f"{user_id[:4]}…"
