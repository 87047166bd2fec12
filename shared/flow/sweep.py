"""Looks after what nobody looks after any more: every minute, bounded, and harmless when it runs twice.

Whatever is unfinished carries the time at which somebody must look at it: shots `enqueueAt`, events `publishBy`, tasks
`checkAt`. Each is one indexed query, oldest first. What is found is woken, and its time moved on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from shared.adapters.cloud_tasks import Bell, Wake
from shared.adapters.firestore import Conflict, Document, Documents, write_version
from shared.adapters.firestore_keys import slots_with_dead_holders, tidy_slot
from shared.adapters.firestore_tasks import look_later, overdue, task_path
from shared.clock import Clock
from shared.flow.settle import Settler
from shared.logs import Log
from shared.task import Patience, Shot, Task

MOST: Final = 200
_MOST_DOUBLINGS: Final = 4
_DEAD_LEASE: Final = timedelta(minutes=10)

log = Log("sweep")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    documents: Documents
    bell: Bell
    settler: Settler
    patience: Patience
    clock: Clock

    async def run(self) -> dict[str, int]:
        """How many of each kind were found."""
        now = self.clock.now()
        shots, unpublished, tasks, slots = await asyncio.gather(
            overdue(self.documents, "shots", "enqueueAt", before=now, most=MOST),
            overdue(self.documents, "events", "publishBy", before=now, most=MOST),
            overdue(self.documents, "tasks", "checkAt", before=now, most=MOST),
            slots_with_dead_holders(self.documents, before=now - _DEAD_LEASE, most=MOST),
        )
        found = {
            "shots": await self._wake_shots(shots, now),
            "events": await self._publish(unpublished, now),
            "tasks": len(tasks),
            "slots": await self._tidy(slots),
        }
        for task in tasks:
            await self.settler.settle(task.id)
        if any(found.values()):
            log.warning("sweep.found", **found)
        return found

    async def _wake_shots(self, overdue_shots: Sequence[Document], now: datetime) -> int:
        """A shot may be waiting in a long queue and not be lost: each time it is left alone for twice as long."""
        tasks = await self._tasks({shot.path.split("/")[1] for shot in overdue_shots})
        wakes: list[Wake] = []
        for document in overdue_shots:
            task_id = document.path.split("/")[1]
            if task_id not in tasks:
                continue
            shot = Shot.from_document(document.fields)
            sweeps = int(document.fields.get("sweeps", 0))
            at = now + self.patience.shot * 2 ** min(sweeps, _MOST_DOUBLINGS)
            try:
                (version,) = await self.documents.commit(
                    look_later(task_id, shot.index, document.version, at=at, now=now)
                )
            except Conflict:
                continue
            wakes.append(
                self.bell.shot(
                    task_id,
                    shot.index,
                    version=write_version(version),
                    attempts=shot.attempts,
                    fresh=shot.fresh,
                    bulk=tasks[task_id].is_bulk,
                    stashed=shot.stash is not None,
                    trace_id=tasks[task_id].trace_id,
                )
            )
        await self.bell.ring(wakes)
        return len(wakes)

    async def _publish(self, unpublished: Sequence[Document], now: datetime) -> int:
        minute = int(now.timestamp()) // 60
        await self.bell.ring(
            self.bell.unpublished(
                str(event.fields["taskId"]), event.id, trace_id=str(event.fields["traceId"]), round_=minute
            )
            for event in unpublished
        )
        return len(unpublished)

    async def _tidy(self, slots: Sequence[Document]) -> int:
        for slot in slots:
            try:
                await self.documents.commit(tidy_slot(slot.id, slot.version))
            except Conflict:
                continue
        return len(slots)

    async def _tasks(self, task_ids: set[str]) -> dict[str, Task]:
        if not task_ids:
            return {}
        found = await self.documents.get(*(task_path(task_id) for task_id in sorted(task_ids)))
        return {
            document.id: Task.from_document(document.fields) for document in found if document is not None
        }
