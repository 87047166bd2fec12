"""Which slot a shot gets: the seed's order, as pure functions over a view of the pool."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


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
class PoolView:
    """What a process believes about the pool; being wrong costs a lost race, never a slot used twice."""

    keys: Mapping[str, Key] = field(default_factory=dict)
    cooling: Mapping[tuple[str, str], datetime] = field(default_factory=dict)
    """(quota domain, model) → until when."""
    slots: Mapping[str, Slot] = field(default_factory=dict)

    def usable(self, slot: Slot, model: str, now: datetime) -> bool:
        key = self.keys.get(slot.key_id)
        if key is None or not key.enabled or slot.number >= key.max_concurrent:
            return False
        until = self.cooling.get((slot.quota_domain, model))
        return until is None or until <= now


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
    free = [
        slot
        for slot in view.slots.values()
        if slot.free_at <= now and slot.slot_id not in promised and view.usable(slot, model, now)
    ]
    rng.shuffle(free)
    return sorted(free, key=lambda slot: in_use[slot.key_id] / slot.weight)


def earliest_free(view: PoolView, *, model: str, now: datetime) -> datetime | None:
    """When a slot may be free at the latest known moment; none when no key is enabled at all."""
    moments = [
        max(slot.free_at, view.cooling.get((slot.quota_domain, model), slot.free_at))
        for slot in view.slots.values()
        if (key := view.keys.get(slot.key_id)) is not None
        and key.enabled
        and slot.number < key.max_concurrent
    ]
    return max(now, min(moments)) if moments else None
