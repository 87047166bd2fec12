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
from chaos.plan import Plan, draw_plan
from chaos.storm import Weather, weather
from localcloud.environment import equal_keys

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
