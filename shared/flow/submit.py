"""Accepts a request: one Commit with the task, all its shots and `task.created`, then a wake-up per shot.

Firestore takes any number of writes in a Commit up to 10 MiB, so that 500 shots are still one: nobody ever sees half a
task. What was written and not enqueued, because this process died or Cloud Tasks did not answer, the sweep enqueues.
"""

from __future__ import annotations

import asyncio
import random
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from google.api_core.exceptions import GoogleAPICallError

from shared import events
from shared.adapters.cloud_tasks import Bell
from shared.adapters.firestore import (
    Conflict,
    Document,
    Documents,
    Version,
    Write,
    create,
    update,
    write_version,
)
from shared.adapters.firestore_tasks import create_event, create_shot, create_task, task_path
from shared.adapters.firestore_users import Use, read_use, seconds_until_tomorrow, use_more, user_path
from shared.api import TaskIn
from shared.clock import Clock
from shared.events import Event
from shared.ids import digest, new_event_id, new_task_id
from shared.logs import Log
from shared.problems import Problem
from shared.task import Params, Patience, Shot, Status, Task

_IDEMPOTENCY_LIFE: Final = timedelta(hours=24)
_TRIES: Final = 40
_OPEN_RETRY_SECONDS: Final = 30

log = Log("entry")


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    task_id: str
    status: str
    total: int
    is_new: bool


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
    patience: Patience
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
            return await self._submit(request, user_id, trace_id, idempotency_key)
        # Requests of one user are let in one after the other here, so that they rarely collide in Firestore.
        async with self._turns.setdefault(user_id, asyncio.Lock()):
            return await self._submit(request, user_id, trace_id, idempotency_key)

    async def _submit(
        self, request: TaskIn, user_id: str, trace_id: str, idempotency_key: str | None
    ) -> Accepted:
        memory = _Memory(
            path=f"idempotency/{digest('idempotency', user_id, idempotency_key)}" if idempotency_key else None
        )
        for attempt in range(_TRIES):
            now = self.clock.now()
            task = self._task(request, user_id, trace_id, idempotency_key, now)
            event = _created(task, new_event_id(self.rng))
            writes = [
                create_task(task, patience=self.patience),
                *(
                    create_shot(task.task_id, shot, expire_at=task.expire_at)
                    for shot in _shots(task, self.patience)
                ),
                create_event(event, patience=self.patience),
                *memory.write(task.task_id, request.fingerprint(), now),
            ]
            refusal: Problem | None = None
            if self.limits.any:
                (document,) = await self.documents.get(user_path(user_id))
                use = read_use(document, now=now)
                refusal = self.limits.refusal(use, pictures=task.total, now=now)
                writes.append(use_more(user_id, use, tasks=1, pictures=task.total, now=now))
            if refusal is None:
                try:
                    versions = await self.documents.commit(*writes)
                except Conflict:
                    pass
                else:
                    await self._wake(task, versions[1 : 1 + task.total], event)
                    return _accepted(task, is_new=True)
            # Lost, or not allowed: to an earlier request with the same key, to another one, or to its own lost answer?
            paths = [task_path(task.task_id), *([memory.path] if memory.path else [])]
            own, *remembered = await self.documents.get(*paths)
            if own is not None:
                # Its own: written, and the sweep wakes what nobody has woken.
                return _accepted(task, is_new=True)
            if remembered and remembered[0] is not None:
                if remembered[0].fields["expireAt"] > now:
                    return await self._earlier(remembered[0], request)
                memory = replace(memory, expired=remembered[0].version)
                continue
            if refusal is not None:
                raise refusal
            await self.clock.sleep(self.rng.uniform(0, 0.02 * 2 ** min(attempt, 6)))
        raise Problem("UPSTREAM_UNAVAILABLE", retry_after=2)

    def _task(
        self, request: TaskIn, user_id: str, trace_id: str, idempotency_key: str | None, now: datetime
    ) -> Task:
        params = request.params
        return Task(
            task_id=new_task_id(self.rng),
            user_id=user_id,
            mode=request.mode,
            images=tuple(request.images),
            params=Params(
                scene=params.scene,
                style=params.style,
                count=request.count,
                background=params.background,
                color=params.color,
                aspect_ratio=params.aspect_ratio,
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
            counted=self.limits.any,
            created_at=now,
            updated_at=now,
            deadline=now + self.task_deadline,
            expire_at=now + self.patience.keep,
        )

    async def _wake(self, task: Task, shot_versions: Sequence[Version], event: Event) -> None:
        wakes = [
            self.bell.shot(
                task.task_id,
                number,
                version=write_version(version),
                bulk=task.is_bulk,
                trace_id=task.trace_id,
            )
            for number, version in enumerate(shot_versions)
        ]
        wakes.append(self.bell.events(task.task_id, [event]))
        try:
            await self.bell.ring(wakes)
        except GoogleAPICallError as error:
            # The task is safe: the sweep wakes what was not woken.
            log.error("task.not_all_enqueued", task_id=task.task_id, reason=type(error).__name__)
        log.info("task.created", task_id=task.task_id, mode=task.mode, total=task.total)

    async def _earlier(self, remembered: Document, request: TaskIn) -> Accepted:
        """The answer to a request that was made before."""
        if remembered.fields["requestHash"] != request.fingerprint():
            raise Problem("IDEMPOTENCY_KEY_REUSED")
        (document,) = await self.documents.get(task_path(remembered.fields["taskId"]))
        if document is None:
            raise Problem("NOT_FOUND", "该请求对应的任务已过期 / the task of that request has expired")
        return _accepted(Task.from_document(document.fields), is_new=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Memory:
    """Where it is kept that a request was made, if its sender gave it a key."""

    path: str | None
    expired: Version | None = None
    """The version of an earlier entry whose time is over."""

    def write(self, task_id: str, fingerprint: str, now: datetime) -> list[Write]:
        if self.path is None:
            return []
        fields = {"taskId": task_id, "requestHash": fingerprint, "expireAt": now + _IDEMPOTENCY_LIFE}
        if self.expired is None:
            return [create(self.path, fields)]
        return [update(self.path, fields, self.expired)]


def _shots(task: Task, patience: Patience) -> list[Shot]:
    return [
        Shot(
            index=number,
            status=Status.PENDING,
            due_at=task.created_at,
            enqueue_at=task.created_at + patience.shot,
        )
        for number in range(task.total)
    ]


def _created(task: Task, event_id: str) -> Event:
    return Event(
        event_id=event_id,
        event_type=events.TASK_CREATED,
        task_id=task.task_id,
        trace_id=task.trace_id,
        timestamp=task.created_at,
        source="entry",
        payload={"mode": task.mode, "total": task.total, "sources": len(task.images)},
    )


def _accepted(task: Task, *, is_new: bool) -> Accepted:
    return Accepted(task_id=task.task_id, status=task.status.value, total=task.total, is_new=is_new)
