"""The desk at which shots wait for a slot, walked by Hypothesis: two processes, one pool, any order of events."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from shared.adapters.firestore import Conflict, Document, Documents
from shared.adapters.firestore_keys import cool_domain, disable_key, lease_slot, slot_path, sync_writes
from shared.flow.slots import NoSlotFree, SlotDesk
from shared.keys import Slot
from tests.properties.stage import Stage, opened
from tests.properties.virtual_clock import VirtualClock, until_idle

MODEL: Final = "flash"
POOL: Final = {"k0": ("p", 1), "k1": ("p", 2), "k2": ("q", 1)}
"""Key → its quota domain and `maxConcurrent`."""
PATIENCE: Final = timedelta(seconds=20)
LEASE: Final = timedelta(seconds=150)
LONGEST_LOOK: Final = timedelta(seconds=1.2)
"""A desk with somebody waiting looks at the pool at least this often."""


@dataclass(eq=False, slots=True, kw_only=True)
class Waiting:
    desk: SlotDesk
    priority: int
    bulk: bool
    since: datetime
    asked: datetime
    number: int
    slot: asyncio.Task[Slot]

    @property
    def rank(self) -> tuple[int, bool, datetime, int]:
        return (-self.priority, self.bulk, self.since, self.number)


@dataclass(eq=False, slots=True, kw_only=True)
class Drawing:
    desk: SlotDesk
    slot: Slot
    until: datetime
    """The end of the lease."""


class Counted(Documents):
    """Knows whether a query of a desk is under way."""

    def __init__(self, *inner: Any, **more: Any) -> None:
        super().__init__(*inner, **more)
        self.under_way = 0

    async def list(self, query: Any) -> list[Document]:
        self.under_way += 1
        try:
            return await super().list(query)
        finally:
            self.under_way -= 1


class AtTheDesk(RuleBasedStateMachine):
    desks = Bundle("desks")
    waiting = Bundle("waiting")
    drawing = Bundle("drawing")

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self._stage = stage
        self._clock = VirtualClock()
        self._client = stage.new_client()
        self._documents = Counted(self._client, rng=random.Random(0))
        self._waiting: list[Waiting] = []
        self._drawing: list[Drawing] = []
        self._asked = 0

    @initialize(target=desks)
    def open_shop(self) -> Any:
        for key_id, (domain, most) in POOL.items():
            writes = sync_writes(
                key_id=key_id,
                weight=10,
                max_concurrent=most,
                quota_domain=domain,
                known=None,
                known_slots={},
                now=self._clock.now(),
            )
            self._stage.run(self._documents.commit(*writes))
        return multiple(self._desk(1), self._desk(2))

    def _desk(self, seed: int) -> SlotDesk:
        return SlotDesk(
            self._documents,
            clock=self._clock,
            rng=random.Random(seed),
            patience=PATIENCE,
            known_keys=frozenset(POOL),
        )

    @rule(target=waiting, desk=desks, priority=st.integers(0, 2), bulk=st.booleans(), age=st.integers(0, 60))
    def ask(self, desk: SlotDesk, priority: int, bulk: bool, age: int) -> Waiting:
        since = self._clock.now() - timedelta(seconds=age)

        async def begin() -> asyncio.Task[Slot]:
            taking = desk.take(model=MODEL, priority=priority, bulk=bulk, since=since)
            return asyncio.get_running_loop().create_task(taking)

        self._asked += 1
        asked = Waiting(
            desk=desk,
            priority=priority,
            bulk=bulk,
            since=since,
            asked=self._clock.now(),
            number=self._asked,
            slot=self._stage.run(begin()),
        )
        self._waiting.append(asked)
        self._settle()
        return asked

    @rule(target=drawing, asked=consumes(waiting))
    def lease(self, asked: Waiting) -> Any:
        """Whoever was promised a slot leases it; whoever has waited in vain goes away."""
        if not asked.slot.done():
            return self._give_up(asked)
        self._waiting.remove(asked)
        try:
            slot = asked.slot.result()
        except NoSlotFree as none:
            assert none.at >= self._clock.now() - PATIENCE
            return multiple()
        begun = self._stage.run(self._lease(asked.desk, slot))
        self._settle()
        if begun is None:
            return multiple()
        self._drawing.append(begun)
        return begun

    def _give_up(self, asked: Waiting) -> Any:
        self._waiting.remove(asked)
        asked.slot.cancel()
        self._settle()
        return multiple()

    async def _lease(self, desk: SlotDesk, slot: Slot) -> Drawing | None:
        now = self._clock.now()
        lease = lease_slot(slot, task_id="t", index=0, token="x", now=now, length=LEASE)
        try:
            (version,) = await self._documents.commit(lease)
        except Conflict:
            (seen,) = await self._documents.get(slot_path(slot.slot_id))
            desk.lost(slot, seen)
            return None
        held = desk.leased(slot, version=version, free_at=now + LEASE)
        return Drawing(desk=desk, slot=held, until=now + LEASE)

    @rule(done=consumes(drawing))
    def give_back(self, done: Drawing) -> None:
        self._drawing.remove(done)
        self._stage.run(done.desk.give_back(done.slot))
        self._settle()

    @rule(lost=consumes(drawing))
    def abandon(self, lost: Drawing) -> None:
        """Nobody knows when that call ends; it counts until its lease does."""
        lost.desk.abandon(lost.slot)
        self._settle()

    @rule(seconds=st.sampled_from([1, 2, 7, 30, 160]))
    def wait(self, seconds: int) -> None:
        until = self._clock.now() + timedelta(seconds=seconds)
        while (alarm := self._clock.next_alarm()) is not None and alarm <= until:
            self._clock.advance(alarm)
            self._settle()
        self._clock.advance(until)
        self._settle()
        self._drawing = [call for call in self._drawing if call.until > self._clock.now()]

    @rule(desk=desks, key_id=st.sampled_from(sorted(POOL)), seconds=st.sampled_from([5, 60]))
    def cool(self, desk: SlotDesk, key_id: str, seconds: int) -> None:
        """Seen by one desk at once, by the other when it looks."""
        now, domain = self._clock.now(), POOL[key_id][0]
        until = now + timedelta(seconds=seconds)
        desk.cooled(domain, MODEL, until)
        writes = cool_domain(
            domain, model=MODEL, until=until, reason="x", is_new=True, probe=None, key_id=key_id, now=now
        )
        self._stage.run(self._documents.commit(*writes))

    @rule(key_id=st.sampled_from(sorted(POOL)))
    def disable(self, key_id: str) -> None:
        self._stage.run(self._documents.commit(*disable_key(key_id, reason="x", now=self._clock.now())))

    @invariant()
    def no_key_is_overused(self) -> None:
        in_use = Counter(call.slot.key_id for call in self._drawing if call.until > self._clock.now())
        assert all(number <= POOL[key_id][1] for key_id, number in in_use.items()), in_use

    @invariant()
    def no_slot_is_promised_twice(self) -> None:
        """Neither to two at one desk, nor while somebody there draws with it."""
        taken = Counter((id(asked.desk), slot.slot_id) for asked, slot in self._promised())
        assert all(number == 1 for number in taken.values()), taken

    @invariant()
    def the_first_in_line_is_served_first(self) -> None:
        still = [asked for asked in self._waiting if not asked.slot.done()]
        now = self._clock.now()
        for asked, slot in self._promised():
            for other in still:
                if other.desk is asked.desk and other.asked < asked.asked and other.asked < now:
                    assert other.rank > asked.rank or asked.slot is slot, (other.rank, asked.rank)

    @invariant()
    def nobody_waits_longer_than_patience(self) -> None:
        now = self._clock.now()
        assert all(asked.slot.done() or now - asked.asked < PATIENCE for asked in self._waiting)

    @invariant()
    def nobody_waits_while_a_slot_is_free(self) -> None:
        now = self._clock.now()
        for asked in self._waiting:
            if asked.slot.done() or now - asked.asked <= LONGEST_LOOK:
                continue
            promised = {slot.slot_id for other, slot in self._promised()}
            free = [
                slot_id
                for key_id, (domain, most) in POOL.items()
                for slot_id in (f"{key_id}.{number}" for number in range(most))
                if slot_id not in promised and self._is_open(key_id, domain, slot_id, now - LONGEST_LOOK)
            ]
            assert not free, f"{free} are free, and somebody has waited since {asked.asked}"

    def _is_open(self, key_id: str, domain: str, slot_id: str, since: datetime) -> bool:
        """Free for some time, of a key in service, of a domain that never had trouble."""
        key, slot, health = (
            self._stage.peek(self._client, path)
            for path in (f"keys/{key_id}", f"slots/{slot_id}", f"domains/{domain}")
        )
        assert key is not None and slot is not None
        return bool(key["enabled"] and slot["freeAt"] <= since and health is None)

    def _promised(self) -> Iterator[tuple[Waiting, Slot]]:
        for asked in self._waiting:
            if asked.slot.done() and not asked.slot.cancelled() and asked.slot.exception() is None:
                yield asked, asked.slot.result()

    def _settle(self) -> None:
        async def quiet() -> None:
            await until_idle()
            while self._documents.under_way:
                await asyncio.sleep(0.0005)
                await until_idle()

        self._stage.run(quiet())

    def teardown(self) -> None:
        for asked in self._waiting:
            asked.slot.cancel()
        self.wait(60)
        for asked in self._waiting:
            if not asked.slot.cancelled():
                asked.slot.exception()
        self._stage.forget(self._client)


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with opened() as stage:
        yield stage


def test_the_desk_is_fair_and_never_promises_a_slot_twice(stage: Stage) -> None:
    run_state_machine_as_test(
        lambda: AtTheDesk(stage),
        settings=settings(
            deadline=None, derandomize=True, max_examples=25, stateful_step_count=30, database=None
        ),
    )
