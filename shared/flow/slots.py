"""The desk at which the shots of one process wait for a slot.

Slots are sticky: whoever has finished with one hands it to the next shot waiting in the same process, which leases it
with the version that the process already knows: no search, no contention. With nobody waiting it is released. The view
of the pool is refreshed only while somebody waits or when it has become old, never per shot.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from shared.adapters.firestore import Conflict, Document, Documents, Version
from shared.adapters.firestore_keys import read_health, read_pool, read_slot, release_slot, slot_path
from shared.clock import Clock
from shared.keys import Health, PoolView, Slot, being_probed, in_order, next_look
from shared.logs import Log

_STARVING_REFRESH: Final = 1.0
"""Seconds between two looks at the pool while somebody waits and nothing is known to be free."""
_OLD_VIEW: Final = timedelta(seconds=5)
"""Nothing is taken from a view older than this before it is refreshed, so that changes to the pool arrive within
seconds, and a process that had nothing to do for a while does not call a domain that has cooled meanwhile."""
_NO_KEYS_WAIT: Final = timedelta(seconds=60)

log = Log("slots")


class NoSlotFree(Exception):
    """Nobody gave up a slot in time."""

    def __init__(self, at: datetime, *, any_key_enabled: bool) -> None:
        super().__init__(f"no slot free; look again at {at.isoformat()}")
        self.at = at
        self.any_key_enabled = any_key_enabled


@dataclass(order=True, slots=True)
class _Waiter:
    rank: tuple[int, bool, float, int]
    model: str = field(compare=False)
    slot: asyncio.Future[Slot] = field(compare=False)


class SlotDesk:
    def __init__(
        self,
        documents: Documents,
        *,
        clock: Clock,
        rng: random.Random,
        patience: timedelta,
        known_keys: frozenset[str],
    ) -> None:
        """`known_keys`: the keys whose secrets this process holds; slots of others are of no use to it."""
        self._documents = documents
        self._clock = clock
        self._rng = rng
        self._patience = patience
        self._known_keys = known_keys
        self._view = PoolView()
        self._viewed_at: datetime | None = None
        self._promised: set[str] = set()
        self._waiters: list[_Waiter] = []
        self._order = itertools.count()
        self._refresher: asyncio.Task[None] | None = None
        self._learnt: dict[tuple[str, str], datetime] = {}

    async def take(self, *, model: str, priority: int, bulk: bool, since: datetime) -> Slot:
        """A slot promised to the caller, who leases it at once and says how that went.

        Higher priority first, then small tasks before large ones, then older ones.
        """
        waiter = _Waiter(
            rank=(-priority, bulk, since.timestamp(), next(self._order)),
            model=model,
            slot=asyncio.get_running_loop().create_future(),
        )
        heapq.heappush(self._waiters, waiter)
        self._serve()
        if not waiter.slot.done():
            self._start_refreshing()
        try:
            await self._wait_for(waiter.slot)
        except asyncio.CancelledError:
            self._leave(waiter)
            raise
        if waiter.slot.done():
            return waiter.slot.result()
        self._leave(waiter)
        now = self._clock.now()
        at = next_look(self._view, model=model, now=now)
        raise NoSlotFree(at or now + _NO_KEYS_WAIT, any_key_enabled=at is not None)

    async def _wait_for(self, promised: asyncio.Future[Slot]) -> None:
        """Until it is there or patience is at its end, by the same clock as everything else."""
        if promised.done():
            return
        patience = asyncio.ensure_future(self._clock.sleep(self._patience.total_seconds()))
        try:
            either: set[asyncio.Future[Any]] = {promised, patience}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            patience.cancel()

    def _leave(self, waiter: _Waiter) -> None:
        """Nobody waits there any more; a slot that was promised meanwhile is for the next one."""
        if waiter.slot.done():
            self._promised.discard(waiter.slot.result().slot_id)
            self._serve()
        else:
            self._waiters.remove(waiter)
            heapq.heapify(self._waiters)

    def leased(self, slot: Slot, *, version: Version, free_at: datetime) -> Slot:
        """The lease was committed. Returns the slot as it now is."""
        self._promised.discard(slot.slot_id)
        held = replace(slot, version=version, free_at=free_at)
        self._remember(held)
        return held

    def lost(self, slot: Slot, seen: Document | None) -> None:
        """Somebody else was quicker; `seen` is the document as it now is, if it was read."""
        self._promised.discard(slot.slot_id)
        if seen is None:
            self._view = replace(
                self._view, slots={i: s for i, s in self._view.slots.items() if i != slot.slot_id}
            )
        else:
            self._remember(read_slot(seen))
        self._serve()

    async def give_back(self, slot: Slot) -> None:
        """The caller has no use for the slot any more: the next one waiting gets it, or everybody."""
        self._promised.discard(slot.slot_id)
        if self._hand_on(slot) or slot.free_at <= self._clock.now():
            return
        try:
            (version,) = await self._documents.commit(
                release_slot(slot.slot_id, slot.version, now=self._clock.now())
            )
        except Conflict:
            # Released already by a Commit whose answer was lost, or the lease ran out and somebody has it.
            (document,) = await self._documents.get(slot_path(slot.slot_id))
            self.lost(slot, document)
            return
        self._remember(replace(slot, version=version, free_at=self._clock.now()))
        self._serve()

    def abandon(self, slot: Slot) -> None:
        """The other side may still be busy with our call: the slot stays leased until it runs out."""
        self._promised.discard(slot.slot_id)

    def may_use(self, slot: Slot, model: str) -> bool:
        """Whether a slot that was promised may still be used, after something new was learnt."""
        return self._view.usable(slot, model, self._clock.now())

    def hits(self, quota_domain: str, model: str) -> int:
        return self._view.health_of(quota_domain, model).hits

    def is_cooling(self, quota_domain: str, model: str) -> bool:
        until = self._view.health_of(quota_domain, model).cool_until
        return until is not None and until > self._clock.now()

    def cooled(self, quota_domain: str, model: str, until: datetime) -> None:
        known = self._view.health_of(quota_domain, model)
        self._learn(
            quota_domain,
            model,
            Health(cool_until=max(until, known.cool_until or until), hits=max(1, known.hits)),
        )

    def probing(self, quota_domain: str, model: str, *, until: datetime) -> None:
        """This process has begun the one call that a recovering domain is let have."""
        known = self._view.health_of(quota_domain, model)
        self._learn(quota_domain, model, replace(known, probe_until=until))

    def probed(self, quota_domain: str, model: str, *, worked: bool) -> None:
        """The answer to that call is in."""
        known = self._view.health_of(quota_domain, model)
        self._learn(quota_domain, model, replace(known, probe_until=None, hits=0 if worked else known.hits))

    def domain_seen(self, document: Document) -> None:
        """A domain's document was read in passing."""
        health = {(document.id, model): found for model, found in read_health(document).items()}
        self._view = replace(self._view, health={**self._view.health, **health})

    def _learn(self, quota_domain: str, model: str, health: Health) -> None:
        self._learnt[quota_domain, model] = self._clock.now()
        self._view = replace(self._view, health={**self._view.health, (quota_domain, model): health})

    def disabled(self, key_id: str, reason: str) -> None:
        keys = dict(self._view.keys)
        if key_id in keys:
            keys[key_id] = replace(keys[key_id], enabled=False, disabled_reason=reason)
            self._view = replace(self._view, keys=keys)

    def has_other_domain(self, quota_domain: str, model: str) -> bool:
        """Whether some other quota domain could take a shot now or as soon as one of its slots turns over."""
        now = self._clock.now()
        return any(
            slot.quota_domain != quota_domain and self._view.usable(slot, model, now)
            for slot in self._view.slots.values()
        )

    def has_other_key(self, key_id: str) -> bool:
        return any(key.enabled and key.key_id != key_id for key in self._view.keys.values())

    def _remember(self, slot: Slot) -> None:
        self._view = replace(self._view, slots={**self._view.slots, slot.slot_id: slot})

    def _is_old(self) -> bool:
        return self._viewed_at is None or self._clock.now() - self._viewed_at > _OLD_VIEW

    def _hand_on(self, slot: Slot) -> bool:
        if self._is_old():
            return False
        now = self._clock.now()
        for waiter in sorted(self._waiters):
            probed = being_probed(self._view, model=waiter.model, promised=self._promised)
            if slot.quota_domain not in probed and self._view.usable(slot, waiter.model, now):
                self._promise(waiter, slot)
                return True
        return False

    def _serve(self) -> None:
        if self._is_old():
            return
        now = self._clock.now()
        for waiter in sorted(self._waiters):
            best = in_order(self._view, model=waiter.model, now=now, rng=self._rng, taken=self._promised)
            if best:
                self._promise(waiter, best[0])
            elif len({waiting.model for waiting in self._waiters}) == 1:
                return

    def _promise(self, waiter: _Waiter, slot: Slot) -> None:
        self._waiters.remove(waiter)
        heapq.heapify(self._waiters)
        self._promised.add(slot.slot_id)
        waiter.slot.set_result(slot)

    def _start_refreshing(self) -> None:
        if self._refresher is None or self._refresher.done():
            self._refresher = asyncio.create_task(self._refresh())

    async def _refresh(self) -> None:
        """Runs while somebody waits, so never after the last answer; one look is enough for an old view."""
        while True:
            begun = self._clock.now()
            try:
                seen = await read_pool(self._documents)
            except Exception as error:  # noqa: BLE001 - whoever waits is put back in time; the next look may work
                log.warning("pool.unreadable", reason=type(error).__name__)
            else:
                self._view = replace(
                    seen,
                    keys={i: key for i, key in seen.keys.items() if i in self._known_keys},
                    slots=self._newest(seen.slots),
                    health={**seen.health, **self._learnt_since(begun)},
                )
                self._viewed_at = self._clock.now()
                self._serve()
            if not self._waiters:
                return
            await self._clock.sleep(_STARVING_REFRESH * self._rng.uniform(0.8, 1.2))
            if not self._waiters:
                return

    def _newest(self, seen: Mapping[str, Slot]) -> dict[str, Slot]:
        """A slot that this process has leased while the view was being read is newer than the view."""
        return {
            slot_id: known
            if (known := self._view.slots.get(slot_id)) is not None and known.version > slot.version
            else slot
            for slot_id, slot in seen.items()
        }

    def _learnt_since(self, begun: datetime) -> dict[tuple[str, str], Health]:
        """What this process found out while the view was being read is newer than the view."""
        self._learnt = {where: at for where, at in self._learnt.items() if at >= begun}
        return {where: self._view.health[where] for where in self._learnt}
