"""`failed list|redrive` and `callbacks list|redrive`: what ended badly, and another chance for it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from shared.adapters.cloud_tasks import Bell
from shared.adapters.firestore import Document, Documents
from shared.adapters.firestore_tasks import event_path, failed_shots, undelivered_events
from shared.admin.report import Refused, print_table, told_time
from shared.clock import Clock, from_unix_ms
from shared.events import NOTIFICATION
from shared.flow.reopen import Changes
from shared.problems import Problem
from shared.task import Shot

MOST = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Letters:
    documents: Documents
    changes: Changes
    bell: Bell
    clock: Clock

    async def list_failed(self, asked: argparse.Namespace) -> None:
        """Show the shots that failed, and why."""
        found = [document for document in await self._failed() if _is_of(document, asked.task)]
        rows = [("TASK", "SHOT", "WHEN", "CODE", "ATTEMPTS", "REASON")]
        for document in found:
            shot = Shot.from_document(document.fields)
            last = shot.errors[-1] if shot.errors else {}
            rows.append(
                (
                    document.path.split("/")[1],
                    str(shot.index),
                    told_time(last.get("timestamp")),
                    str(last.get("code", "-")),
                    str(shot.attempts),
                    str(last.get("message", "-")),
                )
            )
        print_table(rows)
        print(f"{len(found)} failed shots" + (" (the first of more)" if len(found) == MOST else ""))

    async def redrive_failed(self, asked: argparse.Namespace) -> None:
        """Try the failed shots of a task again, or those of every task."""
        tasks = [asked.task] if asked.task else sorted({d.path.split("/")[1] for d in await self._failed()})
        redriven = 0
        for task_id in tasks:
            try:
                redriven += await self.changes.retry(task_id)
            except Problem as problem:
                print(f"{task_id}: {problem.code}")
        print(f"{redriven} shots of {len(tasks)} tasks are tried again")

    async def list_callbacks(self, asked: argparse.Namespace) -> None:
        """Show the events that the mini-program has not taken, and its last answer."""
        found = await self._undelivered(asked.task)
        rows = [("EVENT", "TASK", "TYPE", "WRITTEN", "TRIES", "LAST TRY", "ANSWER")]
        for document in found:
            d = document.fields
            delivery = d["deliveries"][NOTIFICATION]
            rows.append(
                (
                    document.id,
                    d["taskId"],
                    d["eventType"],
                    told_time(from_unix_ms(d["timestamp"])),
                    str(delivery.get("tries", 1)),
                    told_time(delivery.get("at")),
                    str(delivery.get("reason")),
                )
            )
        print_table(rows)
        print(f"{len(found)} callbacks not delivered")

    async def redrive_callbacks(self, asked: argparse.Namespace) -> None:
        """Have undelivered callbacks tried again now: one event, a task's, or all."""
        found = await self._undelivered(asked.task)
        if asked.event:
            found = [document for document in found if document.id == asked.event]
            if not found:
                (document,) = await self.documents.get(event_path(asked.event))
                raise Refused(f"no event {asked.event}" if document is None else "it was delivered")
        now = self.clock.now()
        await self.bell.ring(
            self.bell.delivery(
                document.fields["taskId"],
                document.id,
                NOTIFICATION,
                trace_id=document.fields["traceId"],
                at=now,
                round_=int(now.timestamp()),
            )
            for document in found
        )
        print(f"{len(found)} callbacks are tried again")

    async def _failed(self) -> Sequence[Document]:
        return await failed_shots(self.documents, most=MOST)

    async def _undelivered(self, task_id: str | None) -> list[Document]:
        found = await undelivered_events(self.documents, NOTIFICATION, most=MOST)
        return [document for document in found if not task_id or document.fields["taskId"] == task_id]


def _is_of(document: Document, task_id: str | None) -> bool:
    return not task_id or document.path.split("/")[1] == task_id
