"""What a user may change about a task: cancel it, have its failed shots tried again, have one shot drawn anew.

Each is one fenced Commit on the task, so that it can't cross with the task's end: one of the two comes first.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from google.cloud.firestore import DELETE_FIELD

from shared.adapters.cloud_tasks import Bell
from shared.adapters.firestore import Conflict, Document, Documents, Version, Write, write_version
from shared.adapters.firestore_tasks import reopen_shot, shot_path, shots_of, task_path, update_task
from shared.adapters.firestore_users import read_use, use_more, user_path
from shared.clock import Clock
from shared.flow.settle import Settler
from shared.flow.submit import Limits
from shared.logs import Log
from shared.problems import Problem
from shared.task import Patience, PlanState, Shot, Status, Task

_TRIES: Final = 10

log = Log("entry")


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    documents: Documents
    bell: Bell
    settler: Settler
    task_deadline: timedelta
    limits: Limits
    patience: Patience
    clock: Clock
    rng: random.Random

    async def cancel(self, task_id: str) -> str:
        """Unfinished shots end as cancelled; finished ones stay. The status the task then has."""
        now = self.clock.now()
        for _ in range(_TRIES):
            document, task = await self._open(task_id)
            if task.status.is_final:
                raise Problem("ALREADY_FINAL", f"status: {task.status.value}")
            if task.cancelled_at is None:
                # From here on the sweep would see it through, if this process died.
                fields = {"cancelledAt": now, "checkAt": now, "updatedAt": now}
                try:
                    await self.documents.commit(update_task(task_id, fields, document.version))
                except Conflict:
                    await self._pause()
                    continue
                log.info("task.cancelled", task_id=task_id)
            return await self.settler.settle(task_id)
        raise Problem("UPSTREAM_UNAVAILABLE", retry_after=1)

    async def retry(self, task_id: str) -> int:
        """The failed shots, and no others, are tried again. How many those are."""
        for _ in range(_TRIES):
            document, task = await self._open(task_id)
            found = [
                (shot, at)
                for at in await shots_of(self.documents, task_id)
                if (shot := Shot.from_document(at.fields)).status is Status.FAILED
            ]
            if task.cancelled_at is not None:
                raise Problem("ALREADY_FINAL", "任务已取消 / the task was cancelled")
            if not found:
                raise Problem("NOTHING_TO_RETRY")
            now = self.clock.now()
            shots = [
                reopen_shot(task_id, shot.index, at.version, replaced=None, now=now, patience=self.patience)
                for shot, at in found
            ]
            versions = await self._reopen(task, document, shots, [], now)
            if versions is not None:
                await self._wake(task, [shot for shot, _ in found], versions, fresh=False)
                log.info("task.retried", task_id=task_id, shots=len(found))
                return len(found)
        raise Problem("UPSTREAM_UNAVAILABLE", retry_after=1)

    async def regenerate(self, task_id: str, index: int) -> None:
        """A finished shot is drawn anew; the picture it has is kept beside."""
        for _ in range(_TRIES):
            document, task = await self._open(task_id)
            found, user = await self.documents.get(shot_path(task_id, index), user_path(task.user_id))
            if found is None:
                raise Problem("NOT_FOUND")
            shot = Shot.from_document(found.fields)
            if not shot.status.is_final:
                raise Problem("SHOT_NOT_FINISHED")
            if task.cancelled_at is not None and not task.status.is_final:
                raise Problem("ALREADY_FINAL", "任务正在取消 / the task is being cancelled")
            now = self.clock.now()
            more: list[Write] = []
            if self.limits.any:
                use = read_use(user, now=now)
                opened = int(task.status.is_final)
                refusal = self.limits.refusal(use, pictures=1, tasks=opened, now=now)
                if refusal is not None:
                    raise refusal
                more.append(use_more(task.user_id, use, tasks=opened, pictures=1, now=now))
            again = reopen_shot(
                task_id, index, found.version, replaced=shot.result or {}, now=now, patience=self.patience
            )
            versions = await self._reopen(task, document, [again], more, now)
            if versions is not None:
                await self._wake(task, [shot], versions, fresh=True)
                log.info("shot.asked_again", task_id=task_id, index=index)
                return
        raise Problem("UPSTREAM_UNAVAILABLE", retry_after=1)

    async def _reopen(
        self, task: Task, document: Document, shots: list[Write], more: list[Write], now: datetime
    ) -> list[Version] | None:
        """The versions of the shots; None when something changed meanwhile."""
        fields: dict[str, Any] = {
            "status": Status.PROCESSING.value,
            "deadline": now + self.task_deadline,
            "checkAt": now + self.patience.task,
            "finished": DELETE_FIELD,
            "cancelledAt": DELETE_FIELD,
            "updatedAt": now,
        }
        if task.plan.state is PlanState.FAILED:
            # Its sources could not be had: they are asked for again.
            fields |= {"plan": {"state": PlanState.NONE.value, "attempts": 0}, "errors": []}
        if task.status.is_final and not more and self.limits.any:
            (user,) = await self.documents.get(user_path(task.user_id))
            more = [use_more(task.user_id, read_use(user, now=now), tasks=1, pictures=0, now=now)]
        fields["counted"] = task.counted or (task.status.is_final and self.limits.any)
        try:
            _, *versions = await self.documents.commit(
                update_task(task.task_id, fields, document.version), *shots, *more
            )
        except Conflict:
            mine = await self._written_after_all(task, shots, fields["deadline"])
            if mine is None:
                await self._pause()
            return mine
        return versions[: len(shots)]

    async def _written_after_all(
        self, task: Task, shots: list[Write], deadline: datetime
    ) -> list[Version] | None:
        """The answer to our own Commit may have been lost: a new deadline, to the microsecond, is a signature."""
        whole, *found = await self.documents.get(task_path(task.task_id), *(shot.path for shot in shots))
        if whole is None or whole.fields["deadline"] != deadline:
            return None
        return [document.version for document in found if document is not None]

    async def _open(self, task_id: str) -> tuple[Document, Task]:
        (document,) = await self.documents.get(task_path(task_id))
        if document is None:
            raise Problem("NOT_FOUND")
        return document, Task.from_document(document.fields)

    async def _wake(self, task: Task, shots: list[Shot], versions: list[Version], *, fresh: bool) -> None:
        await self.bell.ring(
            self.bell.shot(
                task.task_id,
                shot.index,
                version=write_version(version),
                fresh=fresh or shot.fresh,
                bulk=task.is_bulk,
                trace_id=task.trace_id,
            )
            for shot, version in zip(shots, versions, strict=True)
        )

    async def _pause(self) -> None:
        await self.clock.sleep(self.rng.uniform(0.01, 0.1))
