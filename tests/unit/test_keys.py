"""Which slot a shot gets (A-060 … A-062, A-065): the key selection of the seed's test plan (A-210)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from shared.keys import Health, Key, PoolView, Slot, earliest_free, in_order, next_look

NOW = datetime(2025, 10, 13, 8, 0, tzinfo=UTC)
PAST = NOW - timedelta(minutes=1)
LATER = NOW + timedelta(seconds=90)
MODEL = "gemini-2.5-flash-image"


def a_key(
    key_id: str, *, weight: int = 10, slots: int = 3, enabled: bool = True, domain: str | None = None
) -> Key:
    return Key(
        key_id=key_id,
        weight=weight,
        max_concurrent=slots,
        quota_domain=domain or f"project-of-{key_id}",
        enabled=enabled,
    )


def a_pool(
    *keys: Key,
    in_use: Mapping[str, int] | None = None,
    cooling: Mapping[tuple[str, str], datetime] | None = None,
    health: Mapping[tuple[str, str], Health] | None = None,
) -> PoolView:
    """Every key with all its slots; `in_use` of them, the lowest numbers first, are leased until LATER."""
    slots = [
        Slot(
            slot_id=f"{key.key_id}.{number}",
            key_id=key.key_id,
            number=number,
            quota_domain=key.quota_domain,
            weight=key.weight,
            free_at=LATER if number < (in_use or {}).get(key.key_id, 0) else PAST,
        )
        for key in keys
        for number in range(key.max_concurrent)
    ]
    return PoolView(
        keys={key.key_id: key for key in keys},
        health={at: Health(cool_until=until) for at, until in (cooling or {}).items()} | dict(health or {}),
        slots={slot.slot_id: slot for slot in slots},
    )


def with_slots(pool: PoolView, *slots: Slot) -> PoolView:
    return replace(pool, slots={**pool.slots, **{slot.slot_id: slot for slot in slots}})


def chosen(pool: PoolView, *, model: str = MODEL, seed: int = 1, taken: Sequence[str] = ()) -> list[Slot]:
    return in_order(pool, model=model, now=NOW, rng=random.Random(seed), taken=taken)


def keys_chosen(pool: PoolView, *, model: str = MODEL, taken: Sequence[str] = ()) -> set[str]:
    return {slot.key_id for slot in chosen(pool, model=model, taken=taken)}


SEED_POOL = (a_key("key1"), a_key("key2"), a_key("key3"), a_key("key4", weight=8, slots=2))


def test_an_idle_pool_offers_every_slot() -> None:
    assert len(chosen(a_pool(*SEED_POOL))) == 11


def test_an_empty_pool_offers_nothing() -> None:
    assert chosen(PoolView()) == []


def test_a_disabled_key_is_left_out() -> None:
    assert keys_chosen(a_pool(a_key("off", enabled=False), a_key("on"))) == {"on"}


def test_a_cooling_domain_is_left_out_with_all_its_keys() -> None:
    pool = a_pool(
        a_key("one", domain="shared"),
        a_key("two", domain="shared"),
        a_key("other"),
        cooling={("shared", MODEL): LATER},
    )
    assert keys_chosen(pool) == {"other"}


def test_a_domain_that_cools_for_one_model_serves_the_others() -> None:
    pool = a_pool(a_key("one", domain="shared"), cooling={("shared", "another-model"): LATER})
    assert keys_chosen(pool) == {"one"}


def test_a_domain_is_back_at_the_very_moment_its_cooling_ends() -> None:
    pool = a_pool(a_key("one", domain="shared"), cooling={("shared", MODEL): NOW})
    assert keys_chosen(pool) == {"one"}


def test_a_leased_slot_is_left_out() -> None:
    free = {slot.slot_id for slot in chosen(a_pool(a_key("one"), in_use={"one": 2}))}
    assert free == {"one.2"}


def test_a_slot_is_free_at_the_very_moment_its_lease_ends() -> None:
    pool = a_pool(a_key("one", slots=1))
    ends_now = replace(pool.slots["one.0"], free_at=NOW)
    assert [slot.slot_id for slot in chosen(with_slots(pool, ends_now))] == ["one.0"]


def test_a_slot_that_is_promised_in_this_process_is_left_out_and_counts_as_load() -> None:
    pool = a_pool(a_key("one", slots=2), a_key("two", slots=2))
    for seed in range(20):
        order = chosen(pool, seed=seed, taken=["one.0"])
        assert [slot.key_id for slot in order] == ["two", "two", "one"]


def test_slots_beyond_a_key_that_was_made_smaller_are_not_used() -> None:
    before = a_pool(a_key("one", slots=3))
    after = replace(before, keys={"one": a_key("one", slots=1)})
    assert [slot.slot_id for slot in chosen(after)] == ["one.0"]


def test_a_lease_beyond_a_key_that_was_made_smaller_still_counts_as_load() -> None:
    before = a_pool(a_key("shrunk", slots=3), a_key("idle"))
    leased = replace(before.slots["shrunk.2"], free_at=LATER)
    after = replace(
        with_slots(before, leased), keys={"shrunk": a_key("shrunk", slots=1), "idle": a_key("idle")}
    )
    assert [slot.key_id for slot in chosen(after)][-1] == "shrunk"


def test_a_slot_whose_key_is_not_known_is_not_used() -> None:
    pool = a_pool(a_key("gone"), a_key("known"))
    assert keys_chosen(replace(pool, keys={"known": pool.keys["known"]})) == {"known"}


def test_the_least_loaded_key_comes_first() -> None:
    pool = a_pool(a_key("two"), a_key("none"), a_key("one"), in_use={"two": 2, "one": 1})
    assert [slot.key_id for slot in chosen(pool)] == ["none"] * 3 + ["one"] * 2 + ["two"]


def test_load_is_measured_against_the_weight() -> None:
    # 2 of 30 is less than 1 of 10
    pool = a_pool(a_key("heavy", weight=30), a_key("light"), in_use={"heavy": 2, "light": 1})
    assert [slot.key_id for slot in chosen(pool)] == ["heavy", "light", "light"]


def test_the_spare_key_of_the_seeds_pool_gets_its_second_shot_last() -> None:
    """Once every key of A-177 draws one picture, the lighter key4 (1 ÷ 8) stands behind the others (1 ÷ 10)."""
    one_each = {"key1": 1, "key2": 1, "key3": 1, "key4": 1}
    order = [slot.key_id for slot in chosen(a_pool(*SEED_POOL, in_use=one_each))]
    assert order[-1] == "key4"
    assert Counter(order[:6]) == {"key1": 2, "key2": 2, "key3": 2}


def test_nine_shots_spread_over_the_seeds_pool_instead_of_filling_one_key_after_another() -> None:
    """A-215's nine shots, chosen one by one: nobody gets a third before everybody has two."""
    taken: list[str] = []
    for number in range(9):
        taken.append(chosen(a_pool(*SEED_POOL), seed=number, taken=taken)[0].slot_id)
    used = Counter(slot_id.partition(".")[0] for slot_id in taken)
    assert used["key4"] == 2
    assert sorted(used[key] for key in ("key1", "key2", "key3")) == [2, 2, 3]


def test_ties_are_broken_at_random() -> None:
    pool = a_pool(*(a_key(f"key{n}", slots=1) for n in range(4)))
    first = Counter(chosen(pool, seed=seed)[0].key_id for seed in range(200))
    assert set(first) == {"key0", "key1", "key2", "key3"}
    assert max(first.values()) < 100


def test_the_same_random_source_gives_the_same_order() -> None:
    pool = a_pool(*SEED_POOL)
    assert chosen(pool, seed=7) == chosen(pool, seed=7)


def test_with_a_free_slot_the_pool_is_free_now() -> None:
    assert earliest_free(a_pool(a_key("one"), in_use={"one": 2}), model=MODEL, now=NOW) == NOW


def test_a_full_pool_is_free_when_its_first_lease_ends() -> None:
    pool = a_pool(a_key("one", slots=2), in_use={"one": 2})
    sooner = replace(pool.slots["one.1"], free_at=NOW + timedelta(seconds=5))
    assert earliest_free(with_slots(pool, sooner), model=MODEL, now=NOW) == NOW + timedelta(seconds=5)


def test_a_cooling_domain_is_free_when_both_its_cooling_and_its_lease_are_over() -> None:
    for cool, lease in ((5, 90), (90, 5)):
        pool = a_pool(
            a_key("one", slots=1), cooling={("project-of-one", MODEL): NOW + timedelta(seconds=cool)}
        )
        leased = replace(pool.slots["one.0"], free_at=NOW + timedelta(seconds=lease))
        found = earliest_free(with_slots(pool, leased), model=MODEL, now=NOW)
        assert found == NOW + timedelta(seconds=90)


def test_cooling_for_another_model_does_not_delay_this_one() -> None:
    pool = a_pool(a_key("one"), cooling={("project-of-one", "another-model"): LATER})
    assert earliest_free(pool, model=MODEL, now=NOW) == NOW


def test_a_pool_without_an_enabled_key_is_never_free() -> None:
    assert earliest_free(a_pool(a_key("off", enabled=False)), model=MODEL, now=NOW) is None
    assert earliest_free(PoolView(), model=MODEL, now=NOW) is None


def test_slots_that_may_not_be_used_do_not_make_the_pool_look_free() -> None:
    pool = a_pool(a_key("small", slots=2), a_key("off", enabled=False), in_use={"small": 1})
    shrunk = replace(pool, keys={**pool.keys, "small": a_key("small", slots=1)})
    assert earliest_free(shrunk, model=MODEL, now=NOW) == LATER


@pytest.mark.parametrize(
    "health",
    [{}, {("project-of-one", MODEL): Health(cool_until=PAST, hits=1, probe_until=LATER)}],
    ids=["in use", "being tried"],
)
def test_who_got_no_slot_asks_again_long_before_a_lease_ends(
    health: dict[tuple[str, str], Health],
) -> None:
    pool = a_pool(a_key("one", slots=2), in_use={"one": 2}, health=health)
    assert earliest_free(pool, model=MODEL, now=NOW) == LATER
    assert next_look(pool, model=MODEL, now=NOW) == NOW + timedelta(seconds=5)


def test_who_got_no_slot_does_not_ask_before_a_cooling_ends() -> None:
    pool = a_pool(a_key("one"), cooling={("project-of-one", MODEL): LATER})
    assert next_look(pool, model=MODEL, now=NOW) == LATER


def test_who_got_no_slot_of_a_pool_without_keys_knows_no_time() -> None:
    assert next_look(PoolView(), model=MODEL, now=NOW) is None


SHARED = ("shared", MODEL)


def test_a_recovering_domain_is_tried_with_one_call_before_the_herd() -> None:
    pool = a_pool(a_key("one", domain="shared"), health={SHARED: Health(cool_until=PAST, hits=1)})
    first = chosen(pool)[0]
    assert chosen(pool, taken=[first.slot_id]) == []


def test_the_one_call_holds_back_every_key_of_the_domain_and_no_other() -> None:
    pool = a_pool(
        a_key("one", domain="shared"),
        a_key("two", domain="shared"),
        a_key("other"),
        health={SHARED: Health(cool_until=PAST, hits=1)},
    )
    assert keys_chosen(pool, taken=["one.0"]) == {"other"}


def test_a_domain_whose_trial_call_is_under_way_somewhere_is_left_out_until_it_ends() -> None:
    under_way = Health(cool_until=PAST, hits=1, probe_until=LATER)
    pool = a_pool(a_key("one", domain="shared", slots=1), health={SHARED: under_way})
    assert chosen(pool) == []
    assert earliest_free(pool, model=MODEL, now=NOW) == LATER


def test_a_trial_call_that_never_ended_is_forgotten_in_time() -> None:
    lost = Health(cool_until=PAST, hits=3, probe_until=NOW)
    assert keys_chosen(a_pool(a_key("one", domain="shared"), health={SHARED: lost})) == {"one"}


def test_a_domain_that_works_again_takes_the_herd() -> None:
    pool = a_pool(a_key("one", domain="shared"), health={SHARED: Health(cool_until=PAST, hits=0)})
    assert len(chosen(pool, taken=["one.0"])) == 2


def test_what_is_left_of_a_trial_call_does_not_block_a_domain_that_works_again() -> None:
    pool = a_pool(a_key("one", domain="shared"), health={SHARED: Health(hits=0, probe_until=LATER)})
    assert len(chosen(pool)) == 3


def test_a_domain_that_recovers_for_one_model_serves_the_others_in_full() -> None:
    elsewhere = {("shared", "another-model"): Health(cool_until=LATER, hits=2, probe_until=LATER)}
    assert len(chosen(a_pool(a_key("one", domain="shared"), health=elsewhere), taken=["one.0"])) == 2
