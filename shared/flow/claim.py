"""The right to draw: a shot, a slot of a key and the picture's place in the cache, taken in one fenced Commit."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from shared import events, retry
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
from shared.adapters.firestore_cache import begin_drawing, being_drawn_until, cache_path, kept_picture
from shared.adapters.firestore_keys import begin_probe, domain_path, lease_slot, slot_path
from shared.adapters.firestore_tasks import (
    claim_shot,
    create_event,
    fail_shot,
    finish_shot,
    shot_path,
    task_path,
)
from shared.cache import cache_key
from shared.clock import Clock
from shared.events import Event
from shared.flow.prepare import Prepared
from shared.flow.slots import NoSlotFree, SlotDesk
from shared.ids import new_event_id, new_token
from shared.keys import Slot
from shared.logs import Log
from shared.task import Claim, Patience, Result, Shot, Status

_SAME_PICTURE_LOOKS: Final = (2.0, 4.0, 8.0, 15.0)
"""Seconds between looks at a picture that another shot is drawing."""

log = Log("generate")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShotWake:
    """What a wake-up says; a hint about Firestore, never the truth."""

    task_id: str
    index: int
    version: str
    waits: int
    attempts: int
    fresh: bool
    bulk: bool
    stashed: bool = False
    trace_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What was claimed."""

    prepared: Prepared
    index: int
    token: str
    version: Version
    slot: Slot
    since: datetime
    cache_key: str | None
    is_probe: bool
    """The first call to a quota domain after it cooled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """The shot and the picture's place in the cache, as far as is known; what is not known is not fenced away."""

    version: Version
    attempts: int
    cache_version: Version | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    documents: Documents
    bell: Bell
    desk: SlotDesk
    store: CosStore
    lease: timedelta
    upload_time: timedelta
    url_lifetime: timedelta
    patience: Patience
    clock: Clock
    rng: random.Random

    async def take(self, wake: ShotWake, prepared: Prepared) -> Held | str:
        """Held; or a word for what became of a wake-up that leads to no drawing."""
        seen = _Seen(version=read_version(wake.version), attempts=wake.attempts)
        while True:
            if self.clock.now() >= prepared.task.deadline:
                return await self._give_up(
                    wake,
                    prepared,
                    "DEADLINE_EXCEEDED",
                    "the task's time was up before the shot's turn",
                    at=self.clock.now(),
                )
            if seen.attempts >= retry.MOST_ATTEMPTS:
                return await self._give_up(
                    wake, prepared, "UNKNOWN_ERROR", "the shot was begun too often without an end", at=None
                )
            try:
                task = prepared.task
                slot = await self.desk.take(
                    model=task.model, priority=task.priority, bulk=task.is_bulk, since=task.created_at
                )
            except NoSlotFree as none:
                return await self._wait_for_slot(wake, prepared, seen, none)
            outcome = await self._try(wake, prepared, slot, seen)
            if not isinstance(outcome, _Seen):
                return outcome
            seen = outcome

    async def _try(self, wake: ShotWake, prepared: Prepared, slot: Slot, seen: _Seen) -> Held | str | _Seen:
        """Held, a word, or what to try again with."""
        task = prepared.task
        probe: Version | None = None
        if self.desk.hits(slot.quota_domain, task.model):
            probe = await self._look_at_domain(slot, task.model)
            if probe is None and not self.desk.may_use(slot, task.model):
                await self.desk.give_back(slot)
                return seen
        now = self.clock.now()
        claim = Claim(
            token=new_token(self.rng), until=now + self.lease + self.upload_time, key_id=slot.key_id
        )
        key = self._cache_key(wake, prepared)
        writes: list[Write] = [
            claim_shot(
                task.task_id,
                wake.index,
                seen.version,
                claim=claim,
                prompt=prepared.prompt(wake.index),
                now=now,
            ),
            lease_slot(
                slot, task_id=task.task_id, index=wake.index, token=claim.token, now=now, length=self.lease
            ),
        ]
        if key is not None:
            writes.append(begin_drawing(key, seen.cache_version, token=claim.token, until=claim.until))
        if probe is not None:
            until = now + self.lease
            writes.append(
                begin_probe(slot.quota_domain, probe, model=task.model, token=claim.token, until=until)
            )
        try:
            versions = await self.documents.commit(*writes)
        except Conflict:
            outcome = await self._after_conflict(wake, prepared, slot, claim, key, probe is not None)
            if not isinstance(outcome, list):
                return outcome
            versions = outcome
        except BaseException:
            self.desk.abandon(slot)
            raise
        leased = self.desk.leased(slot, version=versions[1], free_at=now + self.lease)
        if probe is not None:
            self.desk.probing(slot.quota_domain, task.model, until=now + self.lease)
        return Held(
            prepared=prepared,
            index=wake.index,
            token=claim.token,
            version=versions[0],
            slot=leased,
            since=now,
            cache_key=key,
            is_probe=probe is not None,
        )

    async def _look_at_domain(self, slot: Slot, model: str) -> Version | None:
        """For a domain that is to be tried with one call first: the version that this call is fenced by."""
        try:
            (document,) = await self.documents.get(domain_path(slot.quota_domain))
        except BaseException:
            self.desk.abandon(slot)
            raise
        if document is None:
            self.desk.probed(slot.quota_domain, model, worked=True)
            return None
        self.desk.domain_seen(document)
        is_mine = self.desk.may_use(slot, model) and self.desk.hits(slot.quota_domain, model)
        return document.version if is_mine else None

    async def _after_conflict(
        self, wake: ShotWake, prepared: Prepared, slot: Slot, claim: Claim, key: str | None, probing: bool
    ) -> list[Version] | str | _Seen:
        """Something was not as expected: look at all of it. The versions, if the Commit was ours after all."""
        task = prepared.task
        paths = [shot_path(task.task_id, wake.index), slot_path(slot.slot_id)]
        if key is not None:
            paths.append(cache_path(key))
        if probing:
            paths.append(domain_path(slot.quota_domain))
        try:
            found, seen_slot, *rest = await self.documents.get(*paths)
        except BaseException:
            self.desk.abandon(slot)
            raise
        cached = rest[0] if key is not None else None
        if probing and rest[-1] is not None:
            self.desk.domain_seen(rest[-1])
        if found is None:
            await self.desk.give_back(slot)
            return "over"
        shot = Shot.from_document(found.fields)
        if shot.claim is not None and shot.claim.token == claim.token and seen_slot is not None:
            # Our own Commit went through and its answer was lost.
            return [document.version for document in (found, seen_slot, *rest) if document is not None]
        if seen_slot is not None and seen_slot.version == slot.version:
            await self.desk.give_back(slot)
        else:
            self.desk.lost(slot, seen_slot)
        word = await self._not_now(wake, prepared, shot, found)
        if word is None and shot.stash is not None and not wake.stashed:
            # Drawn already: a wake-up from before it was knows nothing of the picture that waits to be stored.
            await self.wake_later(prepared, shot, found.version, at=self.clock.now())
            word = "stashed"
        if word is None and cached is not None:
            word = await self._from_cache(wake, prepared, found, cached)
        if word is not None:
            return word
        return _Seen(
            version=found.version,
            attempts=shot.attempts,
            cache_version=cached.version if cached is not None else None,
        )

    async def _not_now(self, wake: ShotWake, prepared: Prepared, shot: Shot, found: Document) -> str | None:
        """None when the shot may be claimed at the version that was found."""
        if shot.status.is_final:
            return "done_already"
        now = self.clock.now()
        if shot.status is Status.PROCESSING and shot.claim is not None and shot.claim.until > now:
            # Somebody works on it, or died doing so; look again when its time is up.
            await self.wake_later(prepared, shot, found.version, at=shot.claim.until)
            return "claimed_by_another"
        if shot.status is Status.PENDING and shot.due_at is not None and shot.due_at > now:
            await self.wake_later(prepared, shot, found.version, at=shot.due_at)
            return "not_due"
        return None

    async def _from_cache(
        self, wake: ShotWake, prepared: Prepared, found: Document, cached: Document
    ) -> str | None:
        now = self.clock.now()
        kept = kept_picture(cached, sign=lambda key: self.store.url(key, self.url_lifetime), now=now)
        if kept is not None:
            return await self._give_again(wake, prepared, found.version, kept)
        until = being_drawn_until(cached, now=now)
        if until is None:
            return None
        pause = timedelta(seconds=_SAME_PICTURE_LOOKS[min(wake.waits, len(_SAME_PICTURE_LOOKS) - 1)])
        await self.wake_again(wake, version=write_version(found.version), at=min(until, now + pause))
        return "drawn_by_another_shot"

    async def _give_again(self, wake: ShotWake, prepared: Prepared, version: Version, result: Result) -> str:
        task = prepared.task
        event = self.event(
            prepared,
            events.IMAGE_GENERATED,
            result.told(wake.index),
        )
        try:
            await self.documents.commit(
                finish_shot(task.task_id, wake.index, version, result=result, timings={}),
                create_event(event, patience=self.patience),
            )
        except Conflict:
            return "superseded"
        await self.bell.ring([self.bell.events(task.task_id, [event])])
        log.info("shot.from_cache", task_id=task.task_id, index=wake.index)
        return "from_cache"

    def _cache_key(self, wake: ShotWake, prepared: Prepared) -> str | None:
        task = prepared.task
        if wake.fresh or not task.prompt_cache:
            return None
        return cache_key(
            user_id=task.user_id,
            prompts=task.prompts["final"],
            index=wake.index,
            source_hashes=[source.sha256 for source in task.sources],
            model=task.model,
            aspect_ratio=task.params.aspect_ratio,
            api_payload=task.api_payload,
        )

    async def _wait_for_slot(self, wake: ShotWake, prepared: Prepared, seen: _Seen, none: NoSlotFree) -> str:
        """Not a retry: the shot stays as it is and is looked at again when a slot may be free."""
        if not none.any_key_enabled:
            log.error("pool.empty", task_id=wake.task_id)
        if none.at >= prepared.task.deadline:
            return await self._give_up(
                wake,
                prepared,
                "NO_AVAILABLE_API_KEYS",
                "no API key becomes free before the task's deadline",
                at=none.at,
            )
        spread = timedelta(seconds=self.rng.uniform(0.2, 2.0))
        await self.wake_again(wake, version=write_version(seen.version), at=none.at + spread)
        return "waiting_for_key"

    async def _give_up(
        self, wake: ShotWake, prepared: Prepared, code: str, message: str, *, at: datetime | None
    ) -> str:
        """The shot ends without being claimed (again). `at`: when to look again should there be time after all."""
        task, now = prepared.task, self.clock.now()
        event = self.event(
            prepared,
            events.IMAGE_FAILED,
            {"index": wake.index, "error": {"code": code, "message": message}},
        )
        error = {"code": code, "message": message, "timestamp": now}
        found, whole = await self.documents.get(shot_path(task.task_id, wake.index), task_path(task.task_id))
        if found is None or whole is None:
            return "over"
        shot = Shot.from_document(found.fields)
        word = await self._not_now(wake, prepared, shot, found)
        if word is not None:
            return word
        if at is not None and whole.fields["deadline"] > max(at, task.deadline):
            # Opened again since this process prepared it: its time is a new one.
            await self.wake_again(wake, version=write_version(found.version), at=max(at, task.deadline))
            return "opened_again"
        try:
            await self.documents.commit(
                fail_shot(task.task_id, wake.index, found.version, error=error),
                create_event(event, patience=self.patience),
            )
        except Conflict:
            return "superseded"
        await self.bell.ring([self.bell.events(task.task_id, [event])])
        log.warning("shot.failed", task_id=task.task_id, index=wake.index, code=code, reason=message)
        return "failed"

    def event(self, prepared: Prepared, event_type: str, payload: dict[str, object]) -> Event:
        return Event(
            event_id=new_event_id(self.rng),
            event_type=event_type,
            task_id=prepared.task.task_id,
            trace_id=prepared.task.trace_id,
            timestamp=self.clock.now(),
            source="generate",
            payload=payload,
        )

    async def wake_later(self, prepared: Prepared, shot: Shot, version: Version, *, at: datetime) -> None:
        """The shot is in another state than the wake-up knew: a wake-up for that state."""
        task = prepared.task
        wake = self.bell.shot(
            task.task_id,
            shot.index,
            version=write_version(version),
            attempts=shot.attempts,
            fresh=shot.fresh,
            bulk=task.is_bulk,
            stashed=shot.stash is not None,
            trace_id=task.trace_id,
            at=at,
        )
        await self.bell.ring([wake])

    async def wake_again(self, wake: ShotWake, *, version: str | None = None, at: datetime) -> None:
        """The same state, later: the number of waits makes the name a new one."""
        again = self.bell.shot(
            wake.task_id,
            wake.index,
            version=version or wake.version,
            attempts=wake.attempts,
            waits=wake.waits + 1,
            fresh=wake.fresh,
            bulk=wake.bulk,
            stashed=wake.stashed,
            trace_id=wake.trace_id,
            at=at,
        )
        await self.bell.ring([again])
