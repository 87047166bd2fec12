"""Tasks, shots and events in Firestore: where they are, how they are read, and every change as a fenced write."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from google.cloud.firestore import DELETE_FIELD, ArrayUnion, Increment
from google.cloud.firestore_v1.base_query import FieldFilter

from shared.adapters.firestore import Document, Documents, Version, Write, create, update
from shared.events import Event
from shared.task import Claim, Result, Shot, Status, Task

PUBLISH_GRACE: Final = timedelta(minutes=2)
"""An event that nobody has published by then is published by the sweep."""


def task_path(task_id: str) -> str:
    return f"tasks/{task_id}"


def shot_path(task_id: str, index: int) -> str:
    return f"tasks/{task_id}/shots/{index}"


def event_path(event_id: str) -> str:
    return f"events/{event_id}"


def create_task(task: Task) -> Write:
    return create(task_path(task.task_id), task.to_document())


def create_shot(task_id: str, shot: Shot) -> Write:
    return create(shot_path(task_id, shot.index), shot.to_document())


def create_event(event: Event, *, keep: timedelta) -> Write:
    return create(
        event_path(event.event_id),
        {
            **event.envelope(),
            "publishBy": event.timestamp + PUBLISH_GRACE,
            "publishedAt": None,
            "deliveries": {},
            "expireAt": event.timestamp + keep,
        },
    )


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
            **{f"timings.{name}": value for name, value in timings.items()},
        },
        version,
    )


def fail_shot(task_id: str, index: int, version: Version | None, *, error: dict[str, Any]) -> Write:
    return update(
        shot_path(task_id, index),
        {
            "status": Status.FAILED.value,
            "errors": ArrayUnion([error]),
            "pictures": 0,
            "claim": DELETE_FIELD,
            "enqueueAt": DELETE_FIELD,
        },
        version,
    )


def put_back_shot(
    task_id: str, index: int, version: Version, *, error: dict[str, Any], code: str, at: datetime
) -> Write:
    """Processing → pending again, due at `at`, with one retry more for the code."""
    return update(
        shot_path(task_id, index),
        {
            "status": Status.PENDING.value,
            "errors": ArrayUnion([error]),
            f"retries.{code}": Increment(1),
            "claim": DELETE_FIELD,
            "enqueueAt": at,
        },
        version,
    )


def update_task(task_id: str, fields: dict[str, Any], version: Version | None) -> Write:
    return update(task_path(task_id), fields, version)


def event_published(event_id: str, *, now: datetime, deliveries: dict[str, dict[str, Any]]) -> Write:
    from google.cloud.firestore_v1.field_path import FieldPath

    return update(
        event_path(event_id),
        {
            "publishedAt": now,
            "publishBy": DELETE_FIELD,
            **{FieldPath("deliveries", name).to_api_repr(): state for name, state in deliveries.items()},
        },
    )


def read_event(document: Document) -> Event:
    from shared.clock import from_unix_ms

    d = document.fields
    return Event(
        event_id=d["eventId"],
        event_type=d["eventType"],
        task_id=d.get("taskId"),
        trace_id=d["traceId"],
        timestamp=from_unix_ms(d["timestamp"]),
        source=d["source"],
        payload=d["payload"],
    )


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


async def overdue(
    documents: Documents, kind: str, field: str, *, before: datetime, most: int
) -> list[Document]:
    """What the sweep looks after: everything of a kind whose time has come. `shots` are found under every task."""
    source = documents.collection_group(kind) if kind == "shots" else documents.collection(kind)
    query = source.where(filter=FieldFilter(field, "<=", before)).order_by(field).limit(most)
    return await documents.list(query)
