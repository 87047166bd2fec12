"""The key pool in Firestore: keys (never the secrets), their slots, and the cooling of quota domains."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

from google.cloud.firestore import DELETE_FIELD, Increment, Maximum
from google.cloud.firestore_v1.base_query import FieldFilter
from google.cloud.firestore_v1.field_path import FieldPath

from shared.adapters.firestore import Document, Documents, Version, Write, create, merge, update
from shared.clock import from_unix_ms, unix_ms
from shared.keys import Health, Key, PoolView, Slot


def key_path(key_id: str) -> str:
    return f"keys/{key_id}"


def slot_path(slot_id: str) -> str:
    return f"slots/{slot_id}"


def domain_path(quota_domain: str) -> str:
    return f"domains/{quota_domain}"


def lease_slot(
    slot: Slot, *, task_id: str, index: int, token: str, now: datetime, length: timedelta
) -> Write:
    """Free, or handed on by its holder in this process → leased until it runs out by itself."""
    return update(
        slot_path(slot.slot_id),
        {
            "freeAt": now + length,
            "holder": {"taskId": task_id, "index": index, "token": token},
            "lastUsed": now,
        },
        slot.version,
    )


def release_slot(slot_id: str, version: Version, *, now: datetime) -> Write:
    return update(slot_path(slot_id), {"freeAt": now, "holder": None}, version)


def cool_domain(
    quota_domain: str,
    *,
    model: str,
    until: datetime,
    reason: str,
    is_new: bool,
    probe: str | None,
    key_id: str,
    now: datetime,
) -> list[Write]:
    """The end of the cooling never moves backwards: the server keeps the maximum.

    `is_new`: the domain was not cooling before, so this is one more hit; many calls may fail at once for one reason.
    `probe`: the token of the call, if it was the one that was let through; another's is still under way.
    """
    fields: dict[str, Any] = {
        "coolUntil": {model: Maximum(unix_ms(until))},
        "reason": reason,
        "updatedAt": now,
    }
    if probe is not None:
        fields["probes"] = {model: {probe: DELETE_FIELD}}
    if is_new:
        fields["hits"] = {model: Increment(1)}
    return [merge(domain_path(quota_domain), fields), *count_key_error(key_id, now=now)]


def cool_by_hand(quota_domain: str, *, model: str, until: datetime, now: datetime) -> Write:
    return merge(
        domain_path(quota_domain),
        {"coolUntil": {model: Maximum(unix_ms(until))}, "reason": "by hand", "updatedAt": now},
    )


def begin_probe(quota_domain: str, version: Version, *, model: str, token: str, until: datetime) -> Write:
    """One call is let through to a domain that has cooled; fenced, so that it is one in the whole fleet."""
    return update(domain_path(quota_domain), {_path("probes", model): {token: unix_ms(until)}}, version)


def end_probe(quota_domain: str, *, model: str, token: str, worked: bool) -> Write:
    """Takes away its own mark only: the domain may have cooled again since, and be tried by another."""
    fields: dict[str, Any] = {_path("probes", model, token): DELETE_FIELD}
    if worked:
        fields[_path("hits", model)] = 0
    return update(domain_path(quota_domain), fields)


def count_key_error(key_id: str, *, now: datetime) -> list[Write]:
    return [merge(key_path(key_id), {"errorCount": Increment(1), "lastUsed": now})]


def disable_key(key_id: str, *, reason: str, now: datetime) -> list[Write]:
    return [
        merge(
            key_path(key_id),
            {"enabled": False, "disabledReason": reason, "errorCount": Increment(1), "lastUsed": now},
        )
    ]


def take_out(key_id: str, *, reason: str) -> Write:
    """Disabled by an operator, not because it failed."""
    return update(key_path(key_id), {"enabled": False, "disabledReason": reason})


def enable_key(key_id: str) -> Write:
    return update(key_path(key_id), {"enabled": True, "disabledReason": None, "errorCount": 0})


async def read_keys(documents: Documents) -> dict[str, Key]:
    return {
        document.id: _read_key(document) for document in await documents.list(documents.collection("keys"))
    }


async def read_slots(documents: Documents) -> dict[str, Slot]:
    return {
        document.id: read_slot(document) for document in await documents.list(documents.collection("slots"))
    }


async def read_pool(documents: Documents) -> PoolView:
    keys, slots, domains = await asyncio.gather(
        read_keys(documents), read_slots(documents), documents.list(documents.collection("domains"))
    )
    return PoolView(
        keys=keys,
        slots=slots,
        health={(d.id, model): health for d in domains for model, health in read_health(d).items()},
    )


def read_health(document: Document) -> dict[str, Health]:
    """By model."""
    cooling, hits, probes = (document.fields.get(name, {}) for name in ("coolUntil", "hits", "probes"))
    return {
        model: Health(
            cool_until=_moment(cooling.get(model)),
            hits=hits.get(model, 0),
            probe_until=_moment(max(probes.get(model, {}).values(), default=None)),
        )
        for model in {*cooling, *hits, *probes}
    }


def _moment(milliseconds: int | None) -> datetime | None:
    return from_unix_ms(milliseconds) if milliseconds else None


def _read_key(document: Document) -> Key:
    d = document.fields
    return Key(
        key_id=document.id,
        weight=d.get("weight", 1),
        max_concurrent=d.get("maxConcurrent", 0),
        quota_domain=d.get("quotaDomain", document.id),
        enabled=d.get("enabled", False),
        disabled_reason=d.get("disabledReason"),
        error_count=d.get("errorCount", 0),
        last_used=d.get("lastUsed"),
    )


def read_slot(document: Document) -> Slot:
    d = document.fields
    return Slot(
        slot_id=document.id,
        key_id=d["keyId"],
        number=int(document.id.rsplit(".", 1)[1]),
        quota_domain=d["quotaDomain"],
        weight=d["weight"],
        free_at=d["freeAt"],
        last_used=d.get("lastUsed"),
        version=document.version,
    )


def sync_writes(
    *,
    key_id: str,
    weight: int,
    max_concurrent: int,
    quota_domain: str,
    known: Key | None,
    known_slots: dict[str, Slot],
    now: datetime,
) -> list[Write]:
    """What makes the pool agree with the settings for one key, without disturbing a lease.

    Slots above a lowered `maxConcurrent` stay, and are not chosen any more: a lease on one simply runs out.
    """
    settings: dict[str, Any] = {
        "provider": "gemini",
        "weight": weight,
        "maxConcurrent": max_concurrent,
        "quotaDomain": quota_domain,
    }
    fresh = {"enabled": True, "disabledReason": None, "errorCount": 0, "lastUsed": None}
    writes = [
        create(key_path(key_id), settings | fresh) if known is None else update(key_path(key_id), settings)
    ]
    for number in range(max_concurrent):
        slot_id = f"{key_id}.{number}"
        slot = {"keyId": key_id, "quotaDomain": quota_domain, "weight": weight}
        if slot_id not in known_slots:
            unused = {"freeAt": now, "holder": None, "lastUsed": None}
            writes.append(create(slot_path(slot_id), slot | unused))
            continue
        old = known_slots[slot_id]
        if (old.quota_domain, old.weight) != (quota_domain, weight):
            writes.append(update(slot_path(slot_id), slot, old.version))
    return writes


def stop_cooling(quota_domain: str, model: str) -> Write:
    fields = {_path(name, model): DELETE_FIELD for name in ("coolUntil", "hits", "probes")}
    return update(domain_path(quota_domain), fields)


def tidy_slot(slot_id: str, version: Version) -> Write:
    """A lease that ran out leaves its holder's name behind; the slot has been free since."""
    return update(slot_path(slot_id), {"holder": None}, version)


async def slots_with_dead_holders(documents: Documents, *, before: datetime, most: int) -> list[Document]:
    query = documents.collection("slots").where(filter=FieldFilter("holder.index", ">=", 0)).limit(most)
    return [d for d in await documents.list(query) if d.fields["freeAt"] < before]


def _path(*names: str) -> str:
    return str(FieldPath(*names).to_api_repr())
