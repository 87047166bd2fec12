"""`keys sync|list|enable|disable|cool`: the pool of API keys, seen and changed by an operator.

The secrets of the keys are read by `sync` and go nowhere: Firestore holds ids, never keys.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from shared.adapters.firestore import Documents
from shared.adapters.firestore_keys import (
    cool_by_hand,
    enable_key,
    read_pool,
    stop_cooling,
    sync_writes,
    take_out,
)
from shared.admin.report import Refused, print_table, told_time
from shared.clock import Clock
from shared.keys import Key, PoolView
from shared.settings import AdminSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    settings: AdminSettings
    documents: Documents
    clock: Clock

    async def sync(self, _: argparse.Namespace) -> None:
        """Make the pool agree with GEMINI_API_KEYS; live leases are left alone."""
        wanted = {key.id: key for key in self.settings.api_keys}
        if not wanted:
            raise Refused("GEMINI_API_KEYS is missing: nothing to sync from")
        pool = await read_pool(self.documents)
        now = self.clock.now()
        for key in wanted.values():
            await self.documents.commit(
                *sync_writes(
                    key_id=key.id,
                    weight=key.weight,
                    max_concurrent=key.max_concurrent,
                    quota_domain=key.domain,
                    known=pool.keys.get(key.id),
                    known_slots=dict(pool.slots),
                    now=now,
                )
            )
        gone = [key for key in pool.keys.values() if key.key_id not in wanted and key.enabled]
        for retired in gone:
            await self.documents.commit(take_out(retired.key_id, reason="not in GEMINI_API_KEYS"))
        slots = sum(key.max_concurrent for key in wanted.values())
        print(f"{len(wanted)} keys, {slots} slots" + _named(", disabled because not in the list", gone))

    async def list_keys(self, _: argparse.Namespace) -> None:
        """Show the pool: what is in use, cooling, failing."""
        pool = await read_pool(self.documents)
        if not pool.keys:
            raise Refused("the pool is empty: run `python -m shared.admin keys sync`")
        now = self.clock.now()
        in_use = Counter(slot.key_id for slot in pool.slots.values() if slot.free_at > now)
        last_used = _last_used(pool)
        rows = [("KEY", "STATE", "IN USE", "WEIGHT", "DOMAIN", "COOLING UNTIL", "ERRORS", "LAST USED")]
        for key in sorted(pool.keys.values(), key=lambda key: key.key_id):
            cooling = [
                f"{told_time(until)} ({model})"
                for (domain, model), health in sorted(pool.health.items(), key=lambda item: item[0])
                if domain == key.quota_domain and (until := health.blocked_until(now)) > now
            ]
            rows.append(
                (
                    key.key_id,
                    "enabled" if key.enabled else f"disabled: {key.disabled_reason}",
                    f"{in_use[key.key_id]}/{key.max_concurrent}",
                    str(key.weight),
                    key.quota_domain,
                    ", ".join(cooling) or "-",
                    str(key.error_count),
                    told_time(last_used.get(key.key_id)),
                )
            )
        print_table(rows)

    async def disable(self, asked: argparse.Namespace) -> None:
        """Take a key out of use; calls in flight end by themselves."""
        key = await self._find(asked.key)
        await self.documents.commit(take_out(key.key_id, reason=asked.reason))
        print(f"{key.key_id} disabled: {asked.reason}")

    async def enable(self, asked: argparse.Namespace) -> None:
        """Put a key back into use, and end its domain's cooling."""
        key = await self._find(asked.key)
        pool = await read_pool(self.documents)
        cooling = [model for domain, model in pool.health if domain == key.quota_domain]
        await self.documents.commit(
            enable_key(key.key_id), *(stop_cooling(key.quota_domain, model) for model in cooling)
        )
        print(f"{key.key_id} enabled")

    async def cool(self, asked: argparse.Namespace) -> None:
        """Leave a key's quota domain alone for a while."""
        key = await self._find(asked.key)
        until = self.clock.now() + timedelta(seconds=asked.seconds)
        model = asked.model or self.settings.gemini_model
        await self.documents.commit(
            cool_by_hand(key.quota_domain, model=model, until=until, now=self.clock.now())
        )
        print(f"{key.quota_domain} cools until {told_time(until)} for {model}")

    async def _find(self, key_id: str) -> Key:
        pool = await read_pool(self.documents)
        if key_id not in pool.keys:
            raise Refused(f"no key {key_id}; known: {', '.join(sorted(pool.keys)) or 'none'}")
        return pool.keys[key_id]


def _last_used(pool: PoolView) -> dict[str, datetime]:
    found: dict[str, datetime] = {}
    for slot in pool.slots.values():
        if slot.last_used is not None:
            found[slot.key_id] = max(slot.last_used, found.get(slot.key_id, slot.last_used))
    return found


def _named(title: str, keys: Sequence[Key]) -> str:
    return f"{title}: {', '.join(key.key_id for key in keys)}" if keys else ""
