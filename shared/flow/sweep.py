"""Looks after what nobody looks after any more: every minute, bounded, and harmless when it runs twice.

Unfinished shots carry the time at which somebody must look at them (`enqueueAt`), unpublished events theirs
(`publishBy`), unfinished tasks theirs (`checkAt`); each is one indexed query, and what is found is only woken.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from shared.adapters.cloud_tasks import Bell, Wake
from shared.adapters.firestore import Documents, write_version
from shared.adapters.firestore_tasks import overdue, task_path
from shared.clock import Clock
from shared.ids import digest
from shared.logs import Log

MOST: Final = 200
_SHOT_GRACE: Final = timedelta(seconds=90)
_EVENT_GRACE: Final = timedelta(seconds=0)

log = Log("sweep")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    documents: Documents
    bell: Bell
    clock: Clock

    async def run(self) -> dict[str, int]:
        """How many of each kind were woken."""
        now = self.clock.now()
        shots = await overdue(self.documents, "shots", "enqueueAt", before=now - _SHOT_GRACE, most=MOST)
        unpublished = await overdue(
            self.documents, "events", "publishBy", before=now - _EVENT_GRACE, most=MOST
        )
        # A wake-up with the same name would be refused for hours: the minute makes it a new one.
        minute = int(now.timestamp()) // 60
        wakes: list[Wake] = []
        traces = await self._traces({shot.path.split("/")[1] for shot in shots})
        for shot in shots:
            _, task_id, _, index = shot.path.split("/")
            if task_id in traces:
                wakes.append(
                    self.bell.shot(
                        task_id,
                        int(index),
                        version=write_version(shot.version),
                        attempts=int(shot.fields.get("attempts", 0)),
                        waits=minute,
                        trace_id=traces[task_id],
                    )
                )
        for event in unpublished:
            wake = self.bell.events(
                str(event.fields["taskId"]), [event.id], trace_id=str(event.fields["traceId"])
            )
            wakes.append(
                Wake(
                    queue=wake.queue,
                    url=wake.url,
                    name=digest(wake.name, minute),
                    body=wake.body,
                    trace_id=wake.trace_id,
                )
            )
        await self.bell.ring(wakes)
        found = {"shots": len(shots), "events": len(unpublished)}
        if any(found.values()):
            log.warning("sweep.woke", **found)
        return found

    async def _traces(self, task_ids: set[str]) -> dict[str, str]:
        found = await self.documents.get(*(task_path(task_id) for task_id in sorted(task_ids)))
        return {document.id: str(document.fields["traceId"]) for document in found if document is not None}
