"""Which slot a shot gets: the seed's order, as pure functions over a view of the pool."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

_CALL: Final = timedelta(seconds=5)
"""Somebody's call ends sooner or later than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    key_id: str
    weight: int
    max_concurrent: int
    quota_domain: str
    enabled: bool
    disabled_reason: str | None = None
    error_count: int = 0
    last_used: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One unit of a key's concurrency; free as soon as `free_at` has passed."""

    slot_id: str
    key_id: str
    number: int
    quota_domain: str
    weight: int
    free_at: datetime
    last_used: datetime | None = None
    version: Any = None
    """The fencing token: the update time of the document that this was read from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What is known about a quota domain's quota for one model."""

    cool_until: datetime | None = None
    hits: int = 0
    """Coolings since the last success: while there are any, the domain is tried with one call at a time."""
    probe_until: datetime | None = None
    """Somebody's one call is under way, until then at the latest."""

    def is_cooling(self, now: datetime) -> bool:
        return self.cool_until is not None and self.cool_until > now

    def blocked_until(self, now: datetime) -> datetime:
        moments = [now]
        if self.cool_until is not None:
            moments.append(self.cool_until)
        if self.hits and self.probe_until is not None:
            moments.append(self.probe_until)
        return max(moments)


HEALTHY = Health()


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolView:
    """What a process believes about the pool; being wrong costs a lost race, never a slot used twice."""

    keys: Mapping[str, Key] = field(default_factory=dict)
    health: Mapping[tuple[str, str], Health] = field(default_factory=dict)
    """(quota domain, model) → its health; absent: nothing was ever wrong."""
    slots: Mapping[str, Slot] = field(default_factory=dict)

    def health_of(self, quota_domain: str, model: str) -> Health:
        return self.health.get((quota_domain, model), HEALTHY)

    def in_service(self, slot: Slot) -> bool:
        key = self.keys.get(slot.key_id)
        return key is not None and key.enabled and slot.number < key.max_concurrent

    def usable(self, slot: Slot, model: str, now: datetime) -> bool:
        return self.in_service(slot) and self.health_of(slot.quota_domain, model).blocked_until(now) <= now


def in_order(
    view: PoolView, *, model: str, now: datetime, rng: random.Random, taken: Iterable[str] = ()
) -> list[Slot]:
    """The slots that may be leased now, best first: lowest (slots in use ÷ weight), ties at random.

    `taken`: slots that this process has promised to somebody already.
    """
    promised = set(taken)
    in_use = Counter(
        slot.key_id for slot in view.slots.values() if slot.free_at > now or slot.slot_id in promised
    )
    probed = being_probed(view, model=model, promised=promised)
    free = [
        slot
        for slot in view.slots.values()
        if slot.free_at <= now
        and slot.slot_id not in promised
        and slot.quota_domain not in probed
        and view.usable(slot, model, now)
    ]
    rng.shuffle(free)
    return sorted(free, key=lambda slot: in_use[slot.key_id] / slot.weight)


def being_probed(view: PoolView, *, model: str, promised: Iterable[str]) -> set[str]:
    """The recovering quota domains whose one call this process has promised to somebody already."""
    domains = {view.slots[slot_id].quota_domain for slot_id in promised if slot_id in view.slots}
    return {domain for domain in domains if view.health_of(domain, model).hits}


def earliest_free(view: PoolView, *, model: str, now: datetime) -> datetime | None:
    """When, as far as is known, a slot will be free; none when no key is in service at all."""
    moments = [
        max(slot.free_at, view.health_of(slot.quota_domain, model).blocked_until(now))
        for slot in view.slots.values()
        if view.in_service(slot)
    ]
    return max(now, min(moments)) if moments else None


def next_look(view: PoolView, *, model: str, now: datetime) -> datetime | None:
    """When to ask again who got no slot; none when no key is in service at all.

    A slot that is in use comes back when its call ends, which is long before its lease does.
    """
    at = earliest_free(view, model=model, now=now)
    is_in_use = any(
        view.in_service(slot) and not view.health_of(slot.quota_domain, model).is_cooling(now)
        for slot in view.slots.values()
    )
    return min(at, now + _CALL) if at is not None and is_in_use else at
