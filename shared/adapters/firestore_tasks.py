"""Tasks, shots and events in Firestore: where they are, how they are read, and every change as a fenced write."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from google.cloud.firestore import DELETE_FIELD, ArrayRemove, ArrayUnion, Increment
from google.cloud.firestore_v1.base_query import FieldFilter
from google.cloud.firestore_v1.field_path import FieldPath

from shared.adapters.firestore import Document, Documents, Version, Write, create, update
from shared.clock import unix_ms
from shared.events import Event
from shared.task import Claim, Patience, Result, Shot, Status, Task

DELIVERED: Final = "delivered"
RETRYING: Final = "retrying"
DEAD: Final = "dead"


def task_path(task_id: str) -> str:
    return f"tasks/{task_id}"


def shot_path(task_id: str, index: int) -> str:
    return f"tasks/{task_id}/shots/{index}"


def event_path(event_id: str) -> str:
    return f"events/{event_id}"


def create_task(task: Task, *, patience: Patience) -> Write:
    return create(task_path(task.task_id), task.to_document() | {"checkAt": task.created_at + patience.task})


def create_shot(task_id: str, shot: Shot, *, expire_at: datetime) -> Write:
    """Shots expire by themselves: Firestore deletes an expired task without what is under it."""
    return create(shot_path(task_id, shot.index), shot.to_document() | {"expireAt": expire_at})


def create_event(event: Event, *, patience: Patience) -> Write:
    return create(
        event_path(event.event_id),
        {
            **event.envelope(),
            "publishBy": event.timestamp + patience.event,
            "publishedAt": None,
            "deliveries": {},
            "expireAt": event.timestamp + patience.keep,
        },
    )


def _step(now: datetime, step: str, **more: Any) -> ArrayUnion:
    """One more line of a shot's life."""
    return ArrayUnion([{"at": now, "step": step, **more}])


def claim_shot(
    task_id: str, index: int, version: Version, *, claim: Claim, prompt: str, now: datetime
) -> Write:
    """Pending (or abandoned) → processing. Counts the attempt, so that a crash loop ends."""
    return update(
        shot_path(task_id, index),
        {
            "status": Status.PROCESSING.value,
            "claim": {"token": claim.token, "until": claim.until, "keyId": claim.key_id},
            "prompt": prompt,
            "attempts": Increment(1),
            "keysUsed": ArrayUnion([claim.key_id]),
            "enqueueAt": claim.until,
            "timings.claimedAt": now,
            "life": _step(now, "claimed", key=claim.key_id),
        },
        version,
    )


def finish_shot(
    task_id: str, index: int, version: Version, *, result: Result, timings: dict[str, Any]
) -> Write:
    return update(
        shot_path(task_id, index),
        {
            "status": Status.COMPLETED.value,
            "result": result.to_document(),
            "pictures": 1,
            "claim": DELETE_FIELD,
            "enqueueAt": DELETE_FIELD,
            "fresh": DELETE_FIELD,
            "stash": DELETE_FIELD,
            "life": _step(result.timestamp, "from_cache" if result.from_cache else "stored"),
            **{f"timings.{name}": value for name, value in timings.items()},
        },
        version,
    )


def fail_shot(
    task_id: str, index: int, version: Version | None, *, error: dict[str, Any], key_id: str | None = None
) -> Write:
    return update(
        shot_path(task_id, index),
        {
            "status": Status.FAILED.value,
            "errors": ArrayUnion([error]),
            "pictures": 0,
            "claim": DELETE_FIELD,
            "enqueueAt": DELETE_FIELD,
            "life": _step(error["timestamp"], "failed", code=error["code"], key=key_id),
        },
        version,
    )


def put_back_shot(
    task_id: str,
    index: int,
    version: Version,
    *,
    error: dict[str, Any],
    code: str,
    at: datetime,
    key_id: str,
    patience: Patience,
) -> Write:
    """Processing → pending again, due at `at`, with one retry more for the code."""
    return update(
        shot_path(task_id, index),
        {
            "status": Status.PENDING.value,
            "errors": ArrayUnion([error]),
            f"retries.{code}": Increment(1),
            "claim": DELETE_FIELD,
            "dueAt": at,
            "enqueueAt": at + patience.shot,
            "life": _step(error["timestamp"], "put_back", code=code, key=key_id, until=at),
        },
        version,
    )


def stash_shot(
    task_id: str,
    index: int,
    version: Version,
    *,
    path: str,
    reason: str,
    at: datetime,
    now: datetime,
    patience: Patience,
) -> Write:
    """Drawn, but not stored: the picture waits under `path` until storage takes it."""
    return update(
        shot_path(task_id, index),
        {
            "status": Status.PENDING.value,
            "stash": path,
            "claim": DELETE_FIELD,
            "dueAt": at,
            "enqueueAt": at + patience.shot,
            "life": _step(now, "stashed", reason=reason),
        },
        version,
    )


def cancel_shot(task_id: str, index: int, version: Version, *, now: datetime) -> Write:
    return update(
        shot_path(task_id, index),
        {
            "status": Status.CANCELLED.value,
            "pictures": 0,
            "claim": DELETE_FIELD,
            "enqueueAt": DELETE_FIELD,
            "life": _step(now, "cancelled"),
        },
        version,
    )


def reopen_shot(
    task_id: str,
    index: int,
    version: Version,
    *,
    replaced: dict[str, Any] | None,
    now: datetime,
    patience: Patience,
) -> Write:
    """Final → pending, with all its tries before it. `replaced`: the picture that is asked for anew."""
    fields: dict[str, Any] = {
        "status": Status.PENDING.value,
        "pictures": DELETE_FIELD,
        "result": DELETE_FIELD,
        "claim": DELETE_FIELD,
        "stash": DELETE_FIELD,
        "attempts": 0,
        "retries": {},
        "dueAt": now,
        "enqueueAt": now + patience.shot,
        "life": _step(now, "asked_again"),
    }
    if replaced is not None:
        fields |= {"fresh": True, "previous": ArrayUnion([replaced])}
    return update(shot_path(task_id, index), fields, version)


def look_later(task_id: str, index: int, version: Version, *, at: datetime, now: datetime) -> Write:
    """The sweep has woken the shot, and looks again at `at`."""
    return update(
        shot_path(task_id, index),
        {"enqueueAt": at, "sweeps": Increment(1), "life": _step(now, "swept")},
        version,
    )


def update_task(task_id: str, fields: dict[str, Any], version: Version | None) -> Write:
    return update(task_path(task_id), fields, version)


def event_published(event_id: str, *, now: datetime, deliveries: dict[str, dict[str, Any]]) -> Write:
    """Every subscriber has taken it, which nothing that happens later can change."""
    return update(
        event_path(event_id),
        {
            "publishedAt": now,
            "publishBy": DELETE_FIELD,
            "undelivered": ArrayRemove(list(deliveries)),
            **{_delivery(name): state for name, state in deliveries.items()},
        },
    )


def event_published_in_part(
    event: Document, *, now: datetime, deliveries: dict[str, dict[str, Any]]
) -> Write:
    """How each subscriber's first try went, unless it has been tried before: a later try knows better.

    Who has not got it yet is named, so that it can be found.
    """
    known: dict[str, dict[str, Any]] = event.fields.get("deliveries", {})
    told = {
        name: state
        for name, state in deliveries.items()
        if name not in known or (state["state"] == DELIVERED != known[name]["state"])
    }
    return update(
        event_path(event.id),
        {
            "publishedAt": event.fields.get("publishedAt") or now,
            "publishBy": DELETE_FIELD,
            "undelivered": [n for n, state in {**known, **told}.items() if state["state"] != DELIVERED],
            **{_delivery(name): state for name, state in told.items()},
        },
        event.version,
    )


def event_tried(
    event_id: str, subscriber: str, version: Version | None, *, now: datetime, outcome: dict[str, Any]
) -> Write:
    """How a further try for one subscriber went. A failure needs the version: it must not hide a success."""
    changed = {**outcome, "at": now, "tries": Increment(1)}
    fields = {_delivery(subscriber, name): value for name, value in changed.items()}
    change = ArrayRemove if outcome["state"] == DELIVERED else ArrayUnion
    fields["undelivered"] = change([subscriber])
    return update(event_path(event_id), fields, version)


def _delivery(*names: str) -> str:
    return str(FieldPath("deliveries", *names).to_api_repr())


async def tally(documents: Documents, task_id: str) -> tuple[int, int]:
    """(how many shots are final, how many of them have a picture), in one aggregation and on no hot document.

    `pictures` is written only when a shot ends, 1 or 0, so that its count and its sum are the two answers.
    """
    query = documents.collection(f"tasks/{task_id}/shots").where(filter=FieldFilter("pictures", ">=", 0))
    return await documents.count_and_sum(query, "pictures")


async def shots_of(documents: Documents, task_id: str) -> list[Document]:
    """All shots of a task, in the order of their numbers."""
    found = await documents.list(documents.collection(f"tasks/{task_id}/shots"))
    return sorted(found, key=lambda document: int(document.fields["index"]))


async def tasks_of_user(
    documents: Documents, user_id: str, *, size: int, after: datetime | None
) -> list[Document]:
    query = documents.collection("tasks").where(filter=FieldFilter("userId", "==", user_id))
    if after is not None:
        query = query.where(filter=FieldFilter("createdAt", "<", after))
    return await documents.list(query.order_by("createdAt", direction="DESCENDING").limit(size))


async def events_of(
    documents: Documents, task_id: str, *, since: datetime | None = None, most: int = 1000
) -> list[Document]:
    """The events of a task from `since` on, oldest first; one moment's are in the order of their ids."""
    query = documents.collection("events").where(filter=FieldFilter("taskId", "==", task_id))
    if since is not None:
        query = query.where(filter=FieldFilter("timestamp", ">=", unix_ms(since)))
    return await documents.list(query.order_by("timestamp").limit(most))


async def failed_shots(documents: Documents, *, most: int) -> list[Document]:
    query = documents.collection_group("shots").where(filter=FieldFilter("status", "==", Status.FAILED.value))
    return await documents.list(query.limit(most))


async def undelivered_events(documents: Documents, subscriber: str, *, most: int) -> list[Document]:
    query = documents.collection("events").where(
        filter=FieldFilter("undelivered", "array_contains", subscriber)
    )
    return await documents.list(query.limit(most))


async def overdue(
    documents: Documents, kind: str, field: str, *, before: datetime, most: int
) -> list[Document]:
    """What the sweep looks after: everything of a kind whose time has come. `shots` are found under every task."""
    source = documents.collection_group(kind) if kind == "shots" else documents.collection(kind)
    query = source.where(filter=FieldFilter(field, "<=", before)).order_by(field).limit(most)
    return await documents.list(query)
