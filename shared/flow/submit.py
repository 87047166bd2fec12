"""Accepts a request: one Commit with the task, all its shots and `task.created`, then a wake-up per shot.

Firestore takes any number of writes in a Commit up to 10 MiB, so that 500 shots are still one: nobody ever sees half a
task. What was written and not enqueued, because this process died or Cloud Tasks did not answer, the sweep enqueues.
"""

from __future__ import annotations

import asyncio
import random
import weakref
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from google.api_core.exceptions import GoogleAPICallError

from shared import events
from shared.adapters.cloud_tasks import Bell
from shared.adapters.firestore import Conflict, Documents, create, write_version
from shared.adapters.firestore_tasks import create_event, create_shot, create_task, task_path
from shared.adapters.firestore_users import Use, read_use, seconds_until_tomorrow, use_more, user_path
from shared.api import TaskIn
from shared.clock import Clock
from shared.events import Event
from shared.ids import digest, new_event_id, new_task_id
from shared.logs import Log
from shared.problems import Problem
from shared.task import SHOT_GRACE, Params, Shot, Status, Task

_IDEMPOTENCY_LIFE: Final = timedelta(hours=24)
_LIMIT_TRIES: Final = 40
_OPEN_RETRY_SECONDS: Final = 30

log = Log("entry")


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    task_id: str
    status: str
    total: int
    is_new: bool


class _UseChanged(Exception):
    """Another request of the same user was quicker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one user may have; 0 is no limit."""

    open_tasks: int = 0
    pictures_per_day: int = 0

    @property
    def any(self) -> bool:
        return bool(self.open_tasks or self.pictures_per_day)

    def refusal(self, use: Use, *, pictures: int, now: datetime, tasks: int = 1) -> Problem | None:
        if self.open_tasks and use.open_tasks + tasks > self.open_tasks:
            return Problem(
                "TOO_MANY_OPEN_TASKS",
                f"最多同时进行 {self.open_tasks} 个任务 / at most {self.open_tasks} tasks at a time",
                retry_after=_OPEN_RETRY_SECONDS,
            )
        if self.pictures_per_day and use.pictures_today + pictures > self.pictures_per_day:
            left = max(0, self.pictures_per_day - use.pictures_today)
            return Problem(
                "DAILY_LIMIT_REACHED",
                f"今天还可生成 {left} 张 / {left} of {self.pictures_per_day} pictures are left today",
                retry_after=seconds_until_tomorrow(now),
            )
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reception:
    documents: Documents
    bell: Bell
    default_model: str
    default_callback_url: str
    task_deadline: timedelta
    limits: Limits
    keep: timedelta
    clock: Clock
    rng: random.Random
    _turns: weakref.WeakValueDictionary[str, asyncio.Lock] = field(
        default_factory=weakref.WeakValueDictionary, init=False
    )

    async def submit(
        self, request: TaskIn, *, user_id: str, trace_id: str, idempotency_key: str | None
    ) -> Accepted:
        """Raises a `Problem` when the request can't be accepted; nothing is written then."""
        if not self.limits.any:
            return await self._submit(request, user_id, trace_id, idempotency_key, use=None)
        # Requests of one user are let in one after the other here, so that they rarely collide in Firestore.
        async with self._turns.setdefault(user_id, asyncio.Lock()):
            for attempt in range(_LIMIT_TRIES):
                (document,) = await self.documents.get(user_path(user_id))
                use = read_use(document, now=self.clock.now())
                try:
                    return await self._submit(request, user_id, trace_id, idempotency_key, use=use)
                except _UseChanged:
                    await self.clock.sleep(self.rng.uniform(0, 0.02 * 2 ** min(attempt, 6)))
        raise Problem("UPSTREAM_UNAVAILABLE", retry_after=2)

    async def _submit(
        self, request: TaskIn, user_id: str, trace_id: str, idempotency_key: str | None, *, use: Use | None
    ) -> Accepted:
        now = self.clock.now()
        task = Task(
            task_id=new_task_id(self.rng),
            user_id=user_id,
            mode=request.mode,
            images=tuple(request.images),
            params=Params(
                scene=request.params.scene,
                style=request.params.style,
                count=request.count,
                background=request.params.background,
                color=request.params.color,
                aspect_ratio=request.params.aspect_ratio,
            ),
            prompt=request.prompt,
            model=request.model or self.default_model,
            api_payload=request.api_payload,
            priority=request.priority,
            callback_url=request.callback_url or self.default_callback_url,
            status=Status.PENDING,
            total=request.count,
            trace_id=trace_id,
            idempotency_key=idempotency_key,
            prompt_cache=request.prompt_cache,
            counted=use is not None,
            created_at=now,
            updated_at=now,
            deadline=now + self.task_deadline,
            expire_at=now + self.keep,
        )
        event = Event(
            event_id=new_event_id(self.rng),
            event_type=events.TASK_CREATED,
            task_id=task.task_id,
            trace_id=trace_id,
            timestamp=now,
            source="entry",
            payload={"mode": task.mode, "total": task.total, "sources": len(task.images)},
        )
        writes = [
            create_task(task),
            *(
                create_shot(
                    task.task_id,
                    Shot(index=number, status=Status.PENDING, due_at=now, enqueue_at=now + SHOT_GRACE),
                )
                for number in range(task.total)
            ),
            create_event(event, keep=self.keep),
        ]
        remembered = f"idempotency/{digest('idempotency', user_id, idempotency_key)}"
        if idempotency_key is not None:
            writes.append(
                create(
                    remembered,
                    {
                        "taskId": task.task_id,
                        "requestHash": request.fingerprint(),
                        "expireAt": now + _IDEMPOTENCY_LIFE,
                    },
                )
            )
        refusal = self.limits.refusal(use, pictures=task.total, now=now) if use is not None else None
        if refusal is not None:
            return await self._known(
                task, request, remembered if idempotency_key is not None else None, refusal
            )
        if use is not None:
            writes.append(use_more(user_id, use, tasks=1, pictures=task.total, now=now))
        try:
            versions = await self.documents.commit(*writes)
        except Conflict:
            lost = _UseChanged() if use is not None else Problem("INTERNAL")
            return await self._known(task, request, remembered if idempotency_key is not None else None, lost)
        shot_versions = versions[1 : 1 + task.total]
        wakes = [
            self.bell.shot(task.task_id, number, version=write_version(version), trace_id=trace_id)
            for number, version in enumerate(shot_versions)
        ]
        wakes.append(self.bell.events(task.task_id, [event]))
        try:
            await self.bell.ring(wakes)
        except GoogleAPICallError as error:
            # The task is safe: the sweep wakes what was not woken.
            log.error("task.not_all_enqueued", task_id=task.task_id, reason=type(error).__name__)
        log.info("task.created", task_id=task.task_id, mode=task.mode, total=task.total)
        return Accepted(task_id=task.task_id, status=task.status.value, total=task.total, is_new=True)

    async def _known(
        self, task: Task, request: TaskIn, remembered: str | None, otherwise: Exception
    ) -> Accepted:
        """The Commit lost, or was not allowed: to an earlier request with the same key, or to its own lost answer?"""
        paths = [task_path(task.task_id), *([remembered] if remembered else [])]
        own, *rest = await self.documents.get(*paths)
        memory = rest[0] if rest else None
        if own is not None and (memory is None or memory.fields["taskId"] == task.task_id):
            # Its own: written, and the sweep enqueues it if nobody has.
            return Accepted(task_id=task.task_id, status=task.status.value, total=task.total, is_new=True)
        if memory is None:
            raise otherwise
        if memory.fields["requestHash"] != request.fingerprint():
            raise Problem("IDEMPOTENCY_KEY_REUSED")
        (earlier,) = await self.documents.get(task_path(memory.fields["taskId"]))
        if earlier is None:
            raise Problem("NOT_FOUND", "该请求对应的任务已过期 / the task of that request has expired")
        return Accepted(
            task_id=earlier.id,
            status=str(earlier.fields["status"]),
            total=int(earlier.fields["total"]),
            is_new=False,
        )
