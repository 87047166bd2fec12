"""After a drawing that failed: what it means for the key, and whether the shot is tried again or ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shared import events, retry
from shared.adapters.cloud_tasks import Bell
from shared.adapters.firestore import Conflict, Documents, Write
from shared.adapters.firestore_cache import end_drawing
from shared.adapters.firestore_keys import cool_domain, count_key_error, disable_key, end_probe
from shared.adapters.firestore_tasks import create_event, fail_shot, put_back_shot, shot_path, task_path
from shared.clock import Clock
from shared.errors import LookbookError, TimedOut
from shared.flow.claim import Claims, Held
from shared.flow.slots import SlotDesk
from shared.logs import Log
from shared.retry import GiveUp, KeyEffect, Retry
from shared.task import Patience, Shot

log = Log("generate")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setbacks:
    documents: Documents
    bell: Bell
    claims: Claims
    desk: SlotDesk
    patience: Patience
    clock: Clock

    def learn(self, held: Held, error: LookbookError) -> list[Write]:
        """What the failure of a call says about its key: known here at once, and to be written with the shot."""
        slot, model, now = held.slot, held.prepared.task.model, self.clock.now()
        policy = retry.POLICIES.get(error.code)
        effect = policy.effect if policy else KeyEffect.NONE
        if effect is KeyEffect.COOL_DOMAIN:
            is_new = not self.desk.is_cooling(slot.quota_domain, model)
            until = retry.cool_until(error, hits=self.desk.hits(slot.quota_domain, model), now=now)
            self.desk.cooled(slot.quota_domain, model, until)
            log.warning(
                "key.cooling",
                key=slot.key_id,
                domain=slot.quota_domain,
                model=model,
                until=until,
                code=error.code,
            )
            return cool_domain(
                slot.quota_domain,
                model=model,
                until=until,
                reason=error.code,
                is_new=is_new,
                probe=held.token if held.is_probe else None,
                key_id=slot.key_id,
                now=now,
            )
        effects: list[Write] = []
        if held.is_probe and not isinstance(error, TimedOut):
            # The call ended, whatever came of it: the next one may try the domain.
            self.desk.probed(slot.quota_domain, model, worked=False)
            effects.append(end_probe(slot.quota_domain, model=model, token=held.token, worked=False))
        if effect is KeyEffect.DISABLE:
            self.desk.disabled(slot.key_id, error.code)
            log.error("key.disabled", key=slot.key_id, code=error.code, reason=error.message)
            if not self.desk.has_other_key(slot.key_id):
                log.error("pool.empty", key=slot.key_id)
            effects += disable_key(slot.key_id, reason=error.code, now=now)
        elif effect is KeyEffect.COUNT_ERROR:
            effects += count_key_error(slot.key_id, now=now)
        return effects

    async def record(
        self, held: Held, error: LookbookError, effects: Sequence[Write], *, key_failed: bool = True
    ) -> str:
        """The shot goes back or ends, and the key's lesson is written, in one Commit.

        `key_failed`: it was the drawing that failed, so that another key may do better at once.
        """
        task = held.prepared.task
        found, whole = await self.documents.get(shot_path(task.task_id, held.index), task_path(task.task_id))
        if found is None or whole is None:
            return "over"
        shot = Shot.from_document(found.fields)
        writes = list(effects)
        if held.cache_key is not None:
            writes.append(end_drawing(held.cache_key, now=self.clock.now()))
        decision = retry.decide(
            error,
            retries=shot.retries,
            attempts=shot.attempts,
            now=self.clock.now(),
            # Not the one in memory: a task that was opened again has a new one.
            deadline=whole.fields["deadline"],
            other_domain_free=key_failed and self.desk.has_other_domain(held.slot.quota_domain, task.model),
            keys_left=self.desk.has_other_key(held.slot.key_id),
        )
        if isinstance(decision, Retry):
            return await self._put_back(held, shot, error, decision, writes)
        return await self._end(held, error, decision, writes)

    async def _put_back(
        self, held: Held, shot: Shot, error: LookbookError, decision: Retry, writes: list[Write]
    ) -> str:
        task = held.prepared.task
        record = {
            "code": error.code,
            "message": error.message,
            "timestamp": self.clock.now(),
            "retry": shot.retries.get(error.code, 0) + 1,
        }
        put_back = put_back_shot(
            task.task_id,
            held.index,
            held.version,
            error=record,
            code=error.code,
            at=decision.at,
            key_id=held.slot.key_id,
            patience=self.patience,
        )
        try:
            versions = await self.documents.commit(put_back, *writes)
        except Conflict:
            return await self._superseded(held, writes)
        await self.claims.wake_later(held.prepared, shot, versions[0], at=decision.at)
        log.warning("shot.retry", **_told(held, error), at=decision.at)
        return "retry"

    async def _end(self, held: Held, error: LookbookError, decision: GiveUp, writes: list[Write]) -> str:
        task = held.prepared.task
        record: dict[str, Any] = {
            "code": error.code,
            "message": error.message,
            "timestamp": self.clock.now(),
        }
        if not decision.retriable:
            record["retriable"] = False
        event = self.claims.event(
            held.prepared,
            events.IMAGE_FAILED,
            {"index": held.index, "error": {"code": error.code, "message": error.message}},
        )
        failed = fail_shot(task.task_id, held.index, held.version, error=record, key_id=held.slot.key_id)
        try:
            await self.documents.commit(failed, create_event(event, patience=self.patience), *writes)
        except Conflict:
            return await self._superseded(held, writes)
        await self.bell.ring([self.bell.events(task.task_id, [event])])
        log.warning("shot.failed", **_told(held, error))
        return "failed"

    async def _superseded(self, held: Held, writes: list[Write]) -> str:
        """Somebody else has the shot, or our own Commit's answer was lost; the key's lesson is kept all the same."""
        (found,) = await self.documents.get(shot_path(held.prepared.task.task_id, held.index))
        if found is not None and found.version == held.version:
            # The shot was not the reason: something else in the Commit had gone.
            raise Conflict(
                f"shot {held.prepared.task.task_id}/{held.index}: its setback could not be written"
            )
        log.warning("shot.superseded", task_id=held.prepared.task.task_id, index=held.index)
        if writes:
            await self.documents.commit(*writes)
        return "superseded"


def _told(held: Held, error: LookbookError) -> dict[str, Any]:
    return {
        "task_id": held.prepared.task.task_id,
        "index": held.index,
        "code": error.code,
        "reason": error.message,
        "key": held.slot.key_id,
    }
