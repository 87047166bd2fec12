"""Pictures that are paid for and can't be stored yet: kept in Firestore until storage is back.

A picture is far smaller than a document may be, and drawing it again costs a thousand times what keeping it does. One
that is too large all the same is drawn again.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from shared import events
from shared.adapters.cloud_tasks import Bell
from shared.adapters.cos import CosStore
from shared.adapters.firestore import Conflict, Document, Documents, Write, create, delete
from shared.adapters.firestore_tasks import create_event, finish_shot, shot_path, stash_shot
from shared.clock import Clock
from shared.errors import LookbookError
from shared.flow.claim import Claims, Held, ShotWake
from shared.flow.prepare import Prepared
from shared.flow.upload import Uploader
from shared.images import Picture
from shared.logs import Log
from shared.task import Patience, Result, Shot

_LARGEST: Final = 900_000
"""Bytes; a document may have 1 MiB."""
_PAUSE: Final = timedelta(seconds=20)

log = Log("generate")


def stash_path(task_id: str, index: int, token: str) -> str:
    return f"stash/{task_id}.{index}.{token}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stash:
    documents: Documents
    bell: Bell
    claims: Claims
    store: CosStore
    uploader: Uploader
    upload_time: timedelta
    url_lifetime: timedelta
    patience: Patience
    clock: Clock

    async def put(
        self, held: Held, picture: Picture, error: LookbookError, drawn_at: datetime, effects: list[Write]
    ) -> str | None:
        """Keeps the picture and has its upload tried again; None when it can't be kept."""
        task = held.prepared.task
        if len(picture.data) > _LARGEST:
            return None
        now = self.clock.now()
        at = now + _PAUSE
        path = stash_path(task.task_id, held.index, held.token)
        fields: dict[str, Any] = {
            "data": picture.data,
            "mimeType": picture.mimeType,
            "extension": picture.extension,
            "sha256": picture.sha256,
            "width": picture.width,
            "height": picture.height,
            "drawnAt": drawn_at,
            "expireAt": task.expire_at,
        }
        put_back = stash_shot(
            task.task_id,
            held.index,
            held.version,
            path=path,
            reason=error.message,
            at=at,
            now=now,
            patience=self.patience,
        )
        try:
            versions = await self.documents.commit(put_back, create(path, fields), *effects)
        except Conflict:
            return "superseded"
        shot = Shot(index=held.index, status=held.prepared.task.status, attempts=0, stash=path)
        await self.claims.wake_later(held.prepared, shot, versions[0], at=at)
        log.warning("shot.stashed", task_id=task.task_id, index=held.index, code=error.code)
        return "stashed"

    async def deliver(self, wake: ShotWake, prepared: Prepared) -> str | None:
        """Stores the picture that was kept for a shot; None when there is none."""
        task = prepared.task
        (found,) = await self.documents.get(shot_path(task.task_id, wake.index))
        if found is None:
            return "over"
        shot = Shot.from_document(found.fields)
        if shot.status.is_final:
            return "done_already"
        if shot.stash is None:
            return None
        (kept,) = await self.documents.get(shot.stash)
        if kept is None:
            return None
        try:
            async with asyncio.timeout(self.upload_time.total_seconds()):
                return await self._finish(prepared, shot, found, kept)
        except (LookbookError, TimeoutError):
            if self.clock.now() + _PAUSE >= task.deadline:
                # The settler ends the task and says why; there is nothing left to try before.
                return "stashed"
            await self.claims.wake_again(wake, at=self.clock.now() + _PAUSE)
            return "stashed"

    async def _finish(self, prepared: Prepared, shot: Shot, found: Document, kept: Document) -> str:
        task, d = prepared.task, kept.fields
        cos_key = f"pictures/{task.task_id}/{shot.index}-{kept.id.rsplit('.', 1)[1]}.{d['extension']}"
        await self.uploader.put(cos_key, d["data"], d["mimeType"])
        now = self.clock.now()
        result = Result(
            url=self.store.url(cos_key, self.url_lifetime),
            cos_key=cos_key,
            sha256=d["sha256"],
            width=d["width"],
            height=d["height"],
            timestamp=now,
        )
        event = self.claims.event(prepared, events.IMAGE_GENERATED, result.told(shot.index))
        timings = {"drawnAt": d["drawnAt"], "storedAt": now}
        try:
            await self.documents.commit(
                finish_shot(task.task_id, shot.index, found.version, result=result, timings=timings),
                create_event(event, patience=self.patience),
                delete(kept.path),
            )
        except Conflict:
            return "superseded"
        await self.bell.ring([self.bell.events(task.task_id, [event])])
        log.info("shot.unstashed", task_id=task.task_id, index=shot.index)
        return "generated"
