"""What holds for the choice of a slot in every pool that can be (A-210)."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from shared.keys import Health, Key, PoolView, Slot, earliest_free, in_order

NOW = datetime(2025, 10, 13, 8, 0, tzinfo=UTC)
MODELS = ("flash", "pro")
DOMAINS = ("p", "q", "r")
AROUND_NOW = st.integers(-3, 3).map(lambda seconds: NOW + timedelta(seconds=seconds))


@st.composite
def pools(draw: st.DrawFn) -> PoolView:
    """Keys on, off, shrunk and unknown; domains shared, cooling and recovering; leases over and under way."""
    keys = {
        f"k{number}": Key(
            key_id=f"k{number}",
            weight=draw(st.integers(1, 20)),
            max_concurrent=draw(st.integers(1, 4)),
            quota_domain=draw(st.sampled_from(DOMAINS)),
            enabled=draw(st.booleans()),
        )
        for number in range(draw(st.integers(0, 4)))
    }
    slots = [
        Slot(
            slot_id=f"{key.key_id}.{number}",
            key_id=key.key_id,
            number=number,
            quota_domain=key.quota_domain,
            weight=key.weight,
            free_at=draw(AROUND_NOW),
        )
        for key in keys.values()
        for number in range(draw(st.integers(0, 5)))
    ]
    known = {key_id: key for key_id, key in keys.items() if draw(st.integers(0, 9))}
    health = draw(
        st.dictionaries(
            st.tuples(st.sampled_from(DOMAINS), st.sampled_from(MODELS)),
            st.builds(
                Health,
                cool_until=st.none() | AROUND_NOW,
                hits=st.integers(0, 2),
                probe_until=st.none() | AROUND_NOW,
            ),
        )
    )
    return PoolView(keys=known, health=health, slots={slot.slot_id: slot for slot in slots})


def may_be_leased(pool: PoolView, slot: Slot) -> bool:
    """The rules of the design, read aloud."""
    key = pool.keys.get(slot.key_id)
    is_blocked = any(
        (known.cool_until is not None and known.cool_until > NOW)
        or (known.hits > 0 and known.probe_until is not None and known.probe_until > NOW)
        for (domain, model), known in pool.health.items()
        if domain == slot.quota_domain and model == "flash"
    )
    return (
        key is not None
        and key.enabled
        and slot.number < key.max_concurrent
        and not is_blocked
        and slot.free_at <= NOW
    )


def order(pool: PoolView, *, seed: int = 0, taken: set[str] | None = None) -> list[Slot]:
    return in_order(pool, model="flash", now=NOW, rng=random.Random(seed), taken=taken or set())


@given(pools(), st.integers(), st.data())
@settings(deadline=None)
def test_exactly_the_slots_that_may_be_leased_are_offered(
    pool: PoolView, seed: int, data: st.DataObject
) -> None:
    taken = data.draw(st.sets(st.sampled_from(sorted(pool.slots)))) if pool.slots else set()
    offered = order(pool, seed=seed, taken=taken)
    on_trial = {
        pool.slots[slot_id].quota_domain
        for slot_id in taken
        if pool.health_of(pool.slots[slot_id].quota_domain, "flash").hits
    }
    expected = {
        slot.slot_id
        for slot in pool.slots.values()
        if may_be_leased(pool, slot) and slot.slot_id not in taken and slot.quota_domain not in on_trial
    }
    assert sorted(slot.slot_id for slot in offered) == sorted(expected)


@given(pools(), st.integers())
@settings(deadline=None)
def test_a_slot_never_stands_behind_one_of_a_busier_key(pool: PoolView, seed: int) -> None:
    in_use = Counter(slot.key_id for slot in pool.slots.values() if slot.free_at > NOW)
    loads = [in_use[slot.key_id] / slot.weight for slot in order(pool, seed=seed)]
    assert loads == sorted(loads)


@given(pools(), st.integers(), st.integers())
@settings(deadline=None)
def test_chance_decides_only_between_equally_loaded_keys(pool: PoolView, one: int, other: int) -> None:
    in_use = Counter(slot.key_id for slot in pool.slots.values() if slot.free_at > NOW)

    def loads(seed: int) -> list[float]:
        return [in_use[slot.key_id] / slot.weight for slot in order(pool, seed=seed)]

    assert loads(one) == loads(other)


@given(pools(), st.integers())
@settings(deadline=None)
def test_leasing_the_best_until_none_is_left_fills_every_key_and_overfills_none(
    pool: PoolView, seed: int
) -> None:
    rng = random.Random(seed)
    leased: list[str] = []
    while best := in_order(pool, model="flash", now=NOW, rng=rng):
        slot = replace(best[0], free_at=NOW + timedelta(minutes=1))
        leased.append(slot.slot_id)
        pool = replace(pool, slots={**pool.slots, slot.slot_id: slot})
    assert len(leased) == len(set(leased))
    for key in pool.keys.values():
        in_use = [
            slot
            for slot in pool.slots.values()
            if slot.key_id == key.key_id and slot.number < key.max_concurrent and slot.free_at > NOW
        ]
        assert len(in_use) <= key.max_concurrent
    assert not any(may_be_leased(pool, slot) for slot in pool.slots.values())


@given(pools(), st.integers())
@settings(deadline=None)
def test_one_process_promises_at_most_one_slot_of_a_recovering_domain(pool: PoolView, seed: int) -> None:
    promised: set[str] = set()
    while best := order(pool, seed=seed, taken=promised):
        promised.add(best[0].slot_id)
    per_domain = Counter(pool.slots[slot_id].quota_domain for slot_id in promised)
    assert all(count == 1 or not pool.health_of(domain, "flash").hits for domain, count in per_domain.items())


@given(pools())
@settings(deadline=None)
def test_a_slot_is_offered_exactly_when_the_pool_says_it_is_free_now(pool: PoolView) -> None:
    assert bool(order(pool)) == (earliest_free(pool, model="flash", now=NOW) == NOW)


@given(pools())
@settings(deadline=None)
def test_at_the_moment_the_pool_names_a_slot_is_free_and_not_before(pool: PoolView) -> None:
    moment = earliest_free(pool, model="flash", now=NOW)
    if moment is None:
        far = NOW + timedelta(days=1)
        assert in_order(pool, model="flash", now=far, rng=random.Random(0)) == []
        return
    assert moment >= NOW
    assert in_order(pool, model="flash", now=moment, rng=random.Random(0))
    just_before = moment - timedelta(microseconds=1)
    if just_before >= NOW:
        assert in_order(pool, model="flash", now=just_before, rng=random.Random(0)) == []
