"""Draws one shot: claim it with a slot in one Commit, draw, hand the slot on, store, record, wake `complete`."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from shared import events, images
from shared.adapters.cloud_tasks import Bell
from shared.adapters.cos import CosStore
from shared.adapters.firestore import Conflict, Documents, Write
from shared.adapters.firestore_cache import end_drawing, keep_picture
from shared.adapters.firestore_keys import end_probe
from shared.adapters.firestore_tasks import create_event, finish_shot, shot_path
from shared.adapters.gemini import GeminiPainter
from shared.clock import Clock
from shared.errors import LookbookError, TimedOut
from shared.flow.claim import Claims, Held, ShotWake
from shared.flow.prepare import NotYet, Preparer, TaskIsOver
from shared.flow.setback import Setbacks
from shared.flow.slots import SlotDesk
from shared.flow.stash import Stash
from shared.flow.upload import Uploader
from shared.logs import Log
from shared.task import Patience, Result

log = Log("generate")


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureStyle:
    format: str
    quality: int
    max_edge: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Studio:
    """Everything that drawing a shot needs."""

    documents: Documents
    bell: Bell
    preparer: Preparer
    claims: Claims
    setbacks: Setbacks
    desk: SlotDesk
    painter: GeminiPainter
    store: CosStore
    uploader: Uploader
    stash: Stash
    secrets: Mapping[str, str]
    """Key id → the key itself."""
    style: PictureStyle
    encoder: Executor
    """Where pictures are encoded: with too few threads to keep the next call to Gemini from being made."""
    call_time: timedelta
    """The longest that a call may take, the claim before it included; less than the lease."""
    upload_time: timedelta
    url_lifetime: timedelta
    patience: Patience
    clock: Clock

    async def draw(self, wake: ShotWake) -> str:
        """Handles one wake-up and says in a word what came of it."""
        try:
            prepared = await self.preparer.ready(wake.task_id)
        except TaskIsOver:
            return "over"
        except NotYet as not_yet:
            await self.claims.wake_again(wake, at=not_yet.at)
            return "waiting_for_preparation"
        if wake.stashed:
            word = await self.stash.deliver(wake, prepared)
            if word is not None:
                return word
        held = await self.claims.take(wake, prepared)
        return held if isinstance(held, str) else await self._work(held)

    async def _work(self, held: Held) -> str:
        task = held.prepared.task
        try:
            # Counted from the claim: however long its Commit took, the lease outlives the call.
            left = held.since + self.call_time - self.clock.now()
            if left < self.call_time / 2:
                raise TimedOut("the claim took so long that too little of its lease was left for a call")
            drawn = await self.painter.draw(
                api_key=self.secrets[held.slot.key_id],
                model=task.model,
                prompt=held.prepared.prompt(held.index),
                sources=held.prepared.photos,
                aspect_ratio=task.params.aspect_ratio,
                payload=task.api_payload,
                within=left,
            )
        except LookbookError as error:
            effects = self.setbacks.learn(held, error)
            if isinstance(error, TimedOut):
                # Nobody knows whether the other side has stopped: the lease runs out by itself.
                self.desk.abandon(held.slot)
                return await self.setbacks.record(held, error, effects)
            return await self._hand_on_and(held, self.setbacks.record(held, error, effects))
        except BaseException:
            self.desk.abandon(held.slot)
            raise
        if held.is_probe:
            self.desk.probed(held.slot.quota_domain, task.model, worked=True)
        return await self._hand_on_and(held, self._store_and_record(held, drawn, self.clock.now()))

    async def _hand_on_and(self, held: Held, rest: Coroutine[None, None, str]) -> str:
        """The slot goes to the next shot while the rest is done for this one."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.desk.give_back(held.slot))
            result = group.create_task(rest)
        return result.result()

    async def _store_and_record(self, held: Held, drawn: bytes, drawn_at: datetime) -> str:
        task = held.prepared.task
        encode = partial(
            images.encode_picture,
            drawn,
            format=self.style.format,
            quality=self.style.quality,
            max_edge=self.style.max_edge,
        )
        try:
            picture = await asyncio.get_running_loop().run_in_executor(self.encoder, encode)
        except LookbookError as error:
            return await self.setbacks.record(held, error, self._probe_worked(held), key_failed=False)
        # The name is this attempt's own: a late upload of an abandoned attempt harms nothing.
        cos_key = f"pictures/{task.task_id}/{held.index}-{held.token}.{picture.extension}"
        try:
            # The picture is paid for: the upload is tried again for as long as the claim lasts, not the drawing.
            async with asyncio.timeout(self.upload_time.total_seconds()):
                await self.uploader.put(cos_key, picture.data, picture.mimeType)
        except (LookbookError, TimeoutError) as failure:
            reason = failure if isinstance(failure, LookbookError) else TimedOut("the upload took too long")
            kept = await self.stash.put(held, picture, reason, drawn_at, self._after_stashing(held))
            if kept is not None:
                return kept
            return await self.setbacks.record(held, reason, self._probe_worked(held), key_failed=False)
        now = self.clock.now()
        result = Result(
            url=self.store.url(cos_key, self.url_lifetime),
            cos_key=cos_key,
            sha256=picture.sha256,
            width=picture.width,
            height=picture.height,
            timestamp=now,
        )
        if not await self._record(held, result, drawn_at):
            log.warning("shot.superseded", task_id=task.task_id, index=held.index)
            return "superseded"
        log.info(
            "shot.generated",
            task_id=task.task_id,
            index=held.index,
            key=held.slot.key_id,
            drawing_ms=round((drawn_at - held.since).total_seconds() * 1000),
            storing_ms=round((now - drawn_at).total_seconds() * 1000),
            bytes=len(picture.data),
        )
        return "generated"

    async def _record(self, held: Held, result: Result, drawn_at: datetime) -> bool:
        """The picture, its event and its place in the cache in one Commit; false when the shot is not ours any more."""
        task = held.prepared.task
        event = self.claims.event(
            held.prepared,
            events.IMAGE_GENERATED,
            result.told(held.index),
        )
        timings = {"drawnAt": drawn_at, "storedAt": result.timestamp}
        writes = [
            finish_shot(task.task_id, held.index, held.version, result=result, timings=timings),
            create_event(event, patience=self.patience),
            *self._probe_worked(held),
        ]
        if held.cache_key is not None:
            writes.append(keep_picture(held.cache_key, result))
        try:
            await self.documents.commit(*writes)
        except Conflict:
            (found,) = await self.documents.get(shot_path(task.task_id, held.index))
            if found is None or (found.fields.get("result") or {}).get("cosKey") != result.cos_key:
                return False
        await self.bell.ring([self.bell.events(task.task_id, [event])])
        return True

    def _after_stashing(self, held: Held) -> list[Write]:
        """The drawing worked; whoever waits for the same picture has to draw their own."""
        writes = self._probe_worked(held)
        if held.cache_key is not None:
            writes.append(end_drawing(held.cache_key, now=self.clock.now()))
        return writes

    def _probe_worked(self, held: Held) -> list[Write]:
        if not held.is_probe:
            return []
        model = held.prepared.task.model
        return [end_probe(held.slot.quota_domain, model=model, token=held.token, worked=True)]
