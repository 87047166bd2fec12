"""A short storm with a fixed seed, and a storm over a system that is really broken, which must be noticed.

Longer ones, from any seed: `make chaos ARGS="--seed 7 --shots 300"`.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.invariants import violations
from chaos.plan import Plan, Spell, draw_plan
from chaos.storm import Weather, weather
from localcloud.environment import equal_keys
from localcloud.faults import Rule
from tests.flows.embedded import System

KEYS = equal_keys(4, 3)


@pytest.fixture
def state() -> Iterator[Path]:
    """Kept after a failure: the logs are in it."""
    directory = Path(tempfile.mkdtemp(prefix="lookbook-chaos-"))
    yield directory
    shutil.rmtree(directory)


async def test_after_a_storm_nothing_is_lost_nothing_paid_twice_and_everybody_was_told(state: Path) -> None:
    plan = draw_plan(seed=20, shots=70, seconds=11, keys=KEYS)
    diary: list[str] = []
    books = await weather(
        plan, Weather(keys=KEYS, state=state, patience=0.05, deadline=25, calm=60, drawing=0.3), diary.append
    )
    assert violations(books) == {}, "\n".join(diary)
    assert len(books.crashes) >= 2
    assert any("clocks of generate" in line for line in diary)
    assert sum(len(shots) for shots in books.shots.values()) == 70


async def test_a_pool_that_promises_more_than_its_keys_allow_is_noticed(state: Path) -> None:
    """The proof that the referee is awake: the functions believe in one slot more per key than there is."""
    calm = Plan(
        seed=0,
        seconds=4,
        orders=draw_plan(seed=1, shots=24, seconds=1, keys=KEYS).orders,
        spells=(),
        deaths=(),
        changes=(),
    )
    true, believed = equal_keys(2, 2), equal_keys(2, 3)
    books = await weather(
        calm, Weather(keys=true, believed=believed, state=state, calm=20, drawing=0.3), lambda _: None
    )
    found = violations(books)
    assert found["no_key_is_overused"] == [
        "key1 had 3 calls in flight, 2 are allowed",
        "key2 had 3 calls in flight, 2 are allowed",
    ]
    assert set(found) == {"no_key_is_overused", "no_slot_is_lost"}


async def test_however_slow_firestore_answers_no_key_is_used_twice_at_once(state: Path) -> None:
    """A claim whose answer takes as long as the lease is no right to call any more."""
    slow = Rule(operation="Commit", probability=0.5, latency=1.0, jitter=2.5, phase="after")
    keys = equal_keys(2, 2)
    orders = draw_plan(seed=1, shots=12, seconds=1, keys=keys).orders
    spells = (Spell(at=0, seconds=7, service="firestore", rules=(slow,)),)
    plan = Plan(seed=0, seconds=7, orders=orders, spells=spells, deaths=(), changes=())
    books = await weather(plan, Weather(keys=keys, state=state, calm=60, drawing=1.0), lambda _: None)
    assert violations(books) == {}


async def test_a_request_whose_commit_was_not_answered_is_granted_once(system: System) -> None:
    task_id = await system.submit(count=2, prompt="granted once")
    await system.wait_final(task_id)
    lost = Rule(operation="Commit", error="UNAVAILABLE", phase="after", times=1)
    await system.misbehave("firestore", lost)
    answer = await system.http.post(f"{system.entry}/tasks/{task_id}/shots/1:regenerate")
    assert answer.status_code == 202, answer.text
    task = await system.wait_final(task_id)
    assert len(task["shots"][1]["previous"]) == 1
    assert (await system.stats())["total"]["ok"] == 3
