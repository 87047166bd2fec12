"""Draws one shot: claim it with a slot in one Commit, draw, hand the slot on, store, record, wake `complete`."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from shared import events, images, retry
from shared.adapters.cloud_tasks import Bell
from shared.adapters.cos import CosStore
from shared.adapters.firestore import (
    Conflict,
    Document,
    Documents,
    Version,
    Write,
    read_version,
    write_version,
)
from shared.adapters.firestore_keys import (
    cool_domain,
    count_key_error,
    disable_key,
    lease_slot,
    slot_path,
)
from shared.adapters.firestore_tasks import (
    claim_shot,
    create_event,
    fail_shot,
    finish_shot,
    put_back_shot,
    shot_path,
)
from shared.adapters.gemini import GeminiPainter
from shared.clock import Clock
from shared.errors import LookbookError, TimedOut, Transient
from shared.events import Event
from shared.flow.prepare import NotYet, Prepared, Preparer, TaskIsOver
from shared.flow.slots import NoSlotFree, SlotDesk
from shared.ids import new_event_id, new_token
from shared.images import Picture
from shared.keys import Slot
from shared.logs import Log
from shared.retry import GiveUp, KeyEffect, Retry
from shared.task import Claim, Result, Shot, Status

_UPLOAD_TRIES: Final = 4
_MOST_WAITS: Final = 10_000

log = Log("generate")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShotWake:
    """What a wake-up says; a hint about Firestore, never the truth."""

    task_id: str
    index: int
    version: str
    waits: int
    attempts: int
    trace_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A shot and a slot, claimed together."""

    prepared: Prepared
    index: int
    token: str
    version: Version
    slot: Slot
    since: datetime


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
    desk: SlotDesk
    painter: GeminiPainter
    store: CosStore
    secrets: Mapping[str, str]
    """Key id → the key itself."""
    style: PictureStyle
    lease: timedelta
    upload_time: timedelta
    url_lifetime: timedelta
    keep: timedelta
    clock: Clock
    rng: random.Random

    async def draw(self, wake: ShotWake) -> str:
        """Handles one wake-up and says in a word what came of it."""
        try:
            prepared = await self.preparer.ready(wake.task_id)
        except TaskIsOver:
            return "over"
        except NotYet as not_yet:
            await self._wake_again(wake, at=not_yet.at)
            return "waiting_for_preparation"
        try:
            held = await self._claim(wake, prepared)
        except NoSlotFree as none:
            return await self._wait_for_slot(wake, prepared, none)
        if isinstance(held, str):
            return held
        return await self._work(held)

    async def _claim(self, wake: ShotWake, prepared: Prepared) -> Held | str:
        """The shot and a slot in one Commit; or a word for why this wake-up has nothing to do."""
        task = prepared.task
        version: Version = read_version(wake.version)
        attempts = wake.attempts
        while True:
            if attempts >= retry.MOST_ATTEMPTS:
                return await self._give_up_unclaimed(wake, prepared, version)
            slot = await self.desk.take(model=task.model, priority=task.priority, since=task.created_at)
            now = self.clock.now()
            token = new_token(self.rng)
            claim = Claim(token=token, until=now + self.lease + self.upload_time, key_id=slot.key_id)
            try:
                shot_version, slot_version = await self.documents.commit(
                    claim_shot(
                        task.task_id,
                        wake.index,
                        version,
                        claim=claim,
                        prompt=prepared.prompt(wake.index),
                        now=now,
                    ),
                    lease_slot(
                        slot,
                        task_id=task.task_id,
                        index=wake.index,
                        token=token,
                        now=now,
                        length=self.lease,
                    ),
                )
            except Conflict:
                found, seen = await self.documents.get(
                    shot_path(task.task_id, wake.index), slot_path(slot.slot_id)
                )
                if found is None:
                    await self.desk.give_back(slot)
                    return "over"
                shot = Shot.from_document(found.fields)
                if shot.claim is not None and shot.claim.token == token and seen is not None:
                    # Our own Commit went through and its answer was lost.
                    shot_version, slot_version = found.version, seen.version
                else:
                    await self._settle(slot, seen)
                    reason = await self._why_not(wake, prepared, shot, found)
                    if reason is not None:
                        return reason
                    version, attempts = found.version, shot.attempts
                    continue
            except BaseException:
                self.desk.abandon(slot)
                raise
            leased = self.desk.leased(slot, version=slot_version, free_at=now + self.lease)
            return Held(
                prepared=prepared, index=wake.index, token=token, version=shot_version, slot=leased, since=now
            )

    async def _settle(self, slot: Slot, seen: Document | None) -> None:
        """The Commit failed for the shot's sake or the slot's: keep the slot in the first case."""
        if seen is not None and seen.version == slot.version:
            await self.desk.give_back(slot)
        else:
            self.desk.lost(slot, seen)

    async def _why_not(self, wake: ShotWake, prepared: Prepared, shot: Shot, found: Document) -> str | None:
        """None when the shot may be claimed at the version that was found."""
        if shot.status.is_final:
            return "done_already"
        now = self.clock.now()
        if shot.status is Status.PROCESSING and shot.claim is not None and shot.claim.until > now:
            # Somebody works on it, or died doing so; look again when its time is up.
            await self._wake_later(prepared, wake.index, found.version, shot.attempts, at=shot.claim.until)
            return "claimed_by_another"
        if shot.status is Status.PENDING and shot.enqueue_at is not None and shot.enqueue_at > now:
            await self._wake_later(prepared, wake.index, found.version, shot.attempts, at=shot.enqueue_at)
            return "not_due"
        return None

    async def _work(self, held: Held) -> str:
        task = held.prepared.task
        api_key = self.secrets[held.slot.key_id]
        try:
            drawn = await self.painter.draw(
                api_key=api_key,
                model=task.model,
                prompt=held.prepared.prompt(held.index),
                sources=held.prepared.photos,
                aspect_ratio=task.params.aspect_ratio,
                payload=task.api_payload,
            )
        except LookbookError as error:
            return await self._failed(held, error)
        except BaseException:
            self.desk.abandon(held.slot)
            raise
        drawn_at = self.clock.now()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.desk.give_back(held.slot))
            recording = group.create_task(self._store_and_record(held, drawn, drawn_at))
        return recording.result()

    async def _store_and_record(self, held: Held, drawn: bytes, drawn_at: datetime) -> str:
        task = held.prepared.task
        try:
            picture = await asyncio.to_thread(
                images.encode_picture,
                drawn,
                format=self.style.format,
                quality=self.style.quality,
                max_edge=self.style.max_edge,
            )
            # The name is this attempt's own: a late upload of an abandoned attempt harms nothing.
            cos_key = f"pictures/{task.task_id}/{held.index}-{held.token}.{picture.extension}"
            async with asyncio.timeout(self.upload_time.total_seconds()):
                await self._upload(cos_key, picture)
        except (LookbookError, TimeoutError) as failure:
            error = failure if isinstance(failure, LookbookError) else TimedOut("the upload took too long")
            return await self._record_failure(held, error, [])
        now = self.clock.now()
        result = Result(
            url=self.store.url(cos_key, self.url_lifetime),
            cos_key=cos_key,
            sha256=picture.sha256,
            width=picture.width,
            height=picture.height,
            timestamp=now,
        )
        event = self._event(
            held,
            events.IMAGE_GENERATED,
            {"index": held.index, "url": result.url, "width": result.width, "height": result.height},
        )
        try:
            await self.documents.commit(
                finish_shot(
                    task.task_id,
                    held.index,
                    held.version,
                    result=result,
                    timings={"drawnAt": drawn_at, "storedAt": now},
                ),
                create_event(event, keep=self.keep),
            )
        except Conflict:
            (found,) = await self.documents.get(shot_path(task.task_id, held.index))
            if found is None or (found.fields.get("result") or {}).get("cosKey") != cos_key:
                log.warning("shot.superseded", task_id=task.task_id, index=held.index)
                return "superseded"
        await self.bell.ring([self.bell.events(task.task_id, [event.event_id], trace_id=task.trace_id)])
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

    async def _upload(self, cos_key: str, picture: Picture) -> None:
        """The picture is paid for: the upload is tried again, not the drawing."""
        for attempt in range(_UPLOAD_TRIES):
            try:
                await self.store.put(cos_key, picture.data, picture.mimeType)
            except Transient:
                if attempt == _UPLOAD_TRIES - 1:
                    raise
                await self.clock.sleep(self.rng.uniform(0.5, 1.0) * 2**attempt)
            else:
                return

    async def _failed(self, held: Held, error: LookbookError) -> str:
        """The call failed: settle the slot and the key first, then the shot."""
        task, slot = held.prepared.task, held.slot
        effects: list[Write] = []
        now = self.clock.now()
        policy = retry.POLICIES.get(error.code)
        effect = policy.effect if policy else KeyEffect.NONE
        if effect is KeyEffect.COOL_DOMAIN:
            until = retry.cool_until(error, now=now)
            self.desk.cooled(slot.quota_domain, task.model, until)
            effects = cool_domain(
                slot.quota_domain,
                model=task.model,
                until=until,
                reason=error.code,
                key_id=slot.key_id,
                now=now,
            )
            log.warning(
                "key.cooling",
                key=slot.key_id,
                domain=slot.quota_domain,
                model=task.model,
                until=until,
                code=error.code,
            )
        elif effect is KeyEffect.DISABLE:
            self.desk.disabled(slot.key_id, error.code)
            effects = disable_key(slot.key_id, reason=error.code, now=now)
            log.error("key.disabled", key=slot.key_id, code=error.code)
        elif effect is KeyEffect.COUNT_ERROR:
            effects = count_key_error(slot.key_id, now=now)
        if isinstance(error, TimedOut):
            # Nobody knows whether the other side has stopped: the lease runs out by itself.
            self.desk.abandon(slot)
            return await self._record_failure(held, error, effects)
        async with asyncio.TaskGroup() as group:
            group.create_task(self.desk.give_back(slot))
            recording = group.create_task(self._record_failure(held, error, effects))
        return recording.result()

    async def _record_failure(self, held: Held, error: LookbookError, effects: list[Write]) -> str:
        task = held.prepared.task
        (found,) = await self.documents.get(shot_path(task.task_id, held.index))
        if found is None:
            return "over"
        shot = Shot.from_document(found.fields)
        now = self.clock.now()
        decision = retry.decide(
            error,
            retries=shot.retries,
            attempts=shot.attempts,
            now=now,
            deadline=task.deadline,
            other_domain_free=self.desk.has_other_domain(held.slot.quota_domain, task.model),
            keys_left=self.desk.has_other_key(held.slot.key_id),
        )
        if isinstance(decision, Retry):
            return await self._put_back(held, shot, error, decision, effects)
        return await self._end(held, error, decision, effects)

    async def _put_back(
        self, held: Held, shot: Shot, error: LookbookError, decision: Retry, effects: list[Write]
    ) -> str:
        task = held.prepared.task
        record = {
            "code": error.code,
            "message": error.message,
            "timestamp": self.clock.now(),
            "retry": shot.retries.get(error.code, 0) + 1,
        }
        try:
            versions = await self.documents.commit(
                put_back_shot(
                    task.task_id, held.index, held.version, error=record, code=error.code, at=decision.at
                ),
                *effects,
            )
        except Conflict:
            return await self._superseded(held, effects)
        await self._wake_later(held.prepared, held.index, versions[0], shot.attempts, at=decision.at)
        log.warning(
            "shot.retry",
            task_id=task.task_id,
            index=held.index,
            code=error.code,
            reason=error.message,
            key=held.slot.key_id,
            at=decision.at,
        )
        return "retry"

    async def _end(self, held: Held, error: LookbookError, decision: GiveUp, effects: list[Write]) -> str:
        task = held.prepared.task
        record = _final_record(error.code, error.message, self.clock.now(), decision.retriable)
        event = self._event(
            held,
            events.IMAGE_FAILED,
            {"index": held.index, "error": {"code": error.code, "message": error.message}},
        )
        try:
            await self.documents.commit(
                fail_shot(task.task_id, held.index, held.version, error=record),
                create_event(event, keep=self.keep),
                *effects,
            )
        except Conflict:
            return await self._superseded(held, effects)
        await self.bell.ring([self.bell.events(task.task_id, [event.event_id], trace_id=task.trace_id)])
        log.warning(
            "shot.failed",
            task_id=task.task_id,
            index=held.index,
            code=error.code,
            reason=error.message,
            key=held.slot.key_id,
        )
        return "failed"

    async def _superseded(self, held: Held, effects: list[Write]) -> str:
        """Somebody else has the shot by now; what was learnt about the key is worth keeping all the same."""
        log.warning("shot.superseded", task_id=held.prepared.task.task_id, index=held.index)
        if effects:
            await self.documents.commit(*effects)
        return "superseded"

    async def _wait_for_slot(self, wake: ShotWake, prepared: Prepared, none: NoSlotFree) -> str:
        """Not a retry: the shot stays as it is and is looked at again when a slot may be free."""
        if none.at >= prepared.task.deadline or wake.waits >= _MOST_WAITS:
            return await self._give_up_unclaimed(wake, prepared, read_version(wake.version))
        if not none.any_key_enabled:
            log.error("pool.empty", task_id=wake.task_id)
        spread = timedelta(seconds=self.rng.uniform(0.2, 2.0))
        await self._wake_again(wake, at=none.at + spread)
        return "waiting_for_key"

    async def _give_up_unclaimed(self, wake: ShotWake, prepared: Prepared, version: Version) -> str:
        task = prepared.task
        code, message = "NO_AVAILABLE_API_KEYS", "no API key became free before the task's deadline"
        if wake.attempts >= retry.MOST_ATTEMPTS:
            code, message = "UNKNOWN_ERROR", "the shot was begun too often without an end"
        record = _final_record(code, message, self.clock.now(), True)
        event = Event(
            event_id=new_event_id(self.rng),
            event_type=events.IMAGE_FAILED,
            task_id=task.task_id,
            trace_id=task.trace_id,
            timestamp=self.clock.now(),
            source="generate",
            payload={"index": wake.index, "error": {"code": code, "message": message}},
        )
        try:
            await self.documents.commit(
                fail_shot(task.task_id, wake.index, version, error=record),
                create_event(event, keep=self.keep),
            )
        except Conflict:
            return "superseded"
        await self.bell.ring([self.bell.events(task.task_id, [event.event_id], trace_id=task.trace_id)])
        log.warning("shot.failed", task_id=task.task_id, index=wake.index, code=code, reason=message)
        return "failed"

    def _event(self, held: Held, event_type: str, payload: dict[str, Any]) -> Event:
        return Event(
            event_id=new_event_id(self.rng),
            event_type=event_type,
            task_id=held.prepared.task.task_id,
            trace_id=held.prepared.task.trace_id,
            timestamp=self.clock.now(),
            source="generate",
            payload=payload,
        )

    async def _wake_later(
        self, prepared: Prepared, index: int, version: Version, attempts: int, *, at: datetime
    ) -> None:
        """The shot is in a new state: a wake-up for that state."""
        task = prepared.task
        await self.bell.ring(
            [
                self.bell.shot(
                    task.task_id,
                    index,
                    version=write_version(version),
                    attempts=attempts,
                    trace_id=task.trace_id,
                    at=at,
                )
            ]
        )

    async def _wake_again(self, wake: ShotWake, *, at: datetime) -> None:
        """The same state, later: the number of waits makes the name a new one."""
        await self.bell.ring(
            [
                self.bell.shot(
                    wake.task_id,
                    wake.index,
                    version=wake.version,
                    attempts=wake.attempts,
                    waits=wake.waits + 1,
                    trace_id=wake.trace_id,
                    at=at,
                )
            ]
        )


def _final_record(code: str, message: str, now: datetime, retriable: bool) -> dict[str, Any]:
    record: dict[str, Any] = {"code": code, "message": message, "timestamp": now}
    return record if retriable else record | {"retriable": False}
