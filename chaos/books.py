"""What a storm left behind, read from the stores and from the fakes' own books, never from our logs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

import httpx2
from google.cloud.firestore import AsyncClient
from qcloud_cos import CosConfig, CosS3Client

from localcloud.environment import (
    BUCKET,
    COS_SECRET_ID,
    COS_SECRET_KEY,
    PROJECT,
    Addresses,
    host_and_port,
)

Fields = dict[str, Any]
FINAL = frozenset({"completed", "partial", "failed", "cancelled"})
FINAL_EVENTS = frozenset({"task.completed", "task.failed", "task.cancelled"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The promises that depend on settings."""

    lease: timedelta
    claim: timedelta
    """The longest that one attempt at a shot may take: the lease and the upload."""
    concurrency: Mapping[str, int]
    """Of each key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    read_at: datetime
    limits: Limits
    accepted: Mapping[str, int]
    """Task id → number of shots, as the door promised."""
    orders: int
    """How many orders were placed until they were accepted."""
    crashes: tuple[tuple[datetime, datetime], ...] = ()
    """When processes of `generate` were killed: not before, and not after."""
    tasks: Mapping[str, Fields] = field(default_factory=dict)
    shots: Mapping[str, Mapping[int, Fields]] = field(default_factory=dict)
    events: Mapping[str, Fields] = field(default_factory=dict)
    slots: Mapping[str, Fields] = field(default_factory=dict)
    tagged: frozenset[str] = frozenset()
    """The tasks that the index of tags knows."""
    objects: frozenset[str] = frozenset()
    """What is in COS."""
    stats: Fields = field(default_factory=dict)
    """The fake Gemini's."""
    inbox: tuple[Fields, ...] = ()
    """The receiver's."""

    def all_shots(self) -> Iterator[tuple[str, Fields]]:
        """With a name to call it by."""
        for task_id, shots in self.shots.items():
            for index, shot in shots.items():
                yield f"{task_id}/{index}", shot

    def events_of(self, task_id: str) -> list[Fields]:
        found = [event for event in self.events.values() if event["taskId"] == task_id]
        return sorted(found, key=lambda event: event["timestamp"])

    def reopened(self, task_id: str) -> list[int]:
        """When shots of a task were asked for again, in Unix milliseconds."""
        return sorted(
            {
                unix_ms(step["at"])
                for shot in self.shots[task_id].values()
                for step in shot.get("life", ())
                if step["step"] == "asked_again"
            }
        )


def unix_ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


class Reader:
    """Reads through the real SDKs and over HTTP."""

    def __init__(self, addresses: Addresses, http: httpx2.AsyncClient) -> None:
        self._addresses = addresses
        self._http = http
        with mock.patch.dict(os.environ, FIRESTORE_EMULATOR_HOST=addresses.firestore):
            self._firestore = AsyncClient(project=PROJECT)
        cos = host_and_port(addresses.cos or "")
        config = CosConfig(
            SecretId=COS_SECRET_ID, SecretKey=COS_SECRET_KEY, Scheme="http", Domain=f"{cos}/{BUCKET}"
        )
        self._cos = CosS3Client(config)

    async def unfinished(self) -> tuple[int, int]:
        """How many tasks are not final, and how many events somebody has not heard of."""
        tasks, events = await asyncio.gather(self._collection("tasks"), self._collection("events"))
        return (
            sum(task["status"] not in FINAL for task in tasks.values()),
            sum(
                event.get("publishedAt") is None or bool(event.get("undelivered"))
                for event in events.values()
            ),
        )

    async def read(
        self,
        *,
        limits: Limits,
        accepted: Mapping[str, int],
        orders: int,
        crashes: tuple[tuple[datetime, datetime], ...],
    ) -> Books:
        shots: dict[str, dict[int, Fields]] = {}
        async for found in self._firestore.collection_group("shots").stream():
            path = found.reference.path.split("/")
            shots.setdefault(path[1], {})[int(path[3])] = found.to_dict() or {}
        tasks, events, slots, tags = await asyncio.gather(
            *(self._collection(name) for name in ("tasks", "events", "slots", "tagIndex"))
        )
        return Books(
            read_at=datetime.now(UTC),
            limits=limits,
            accepted=accepted,
            orders=orders,
            crashes=crashes,
            tasks=tasks,
            shots={task_id: shots.get(task_id, {}) for task_id in {*tasks, *shots}},
            events=events,
            slots=slots,
            tagged=frozenset(tags),
            objects=await asyncio.to_thread(self._objects),
            stats=await self._json(f"{self._addresses.gemini}/stats"),
            inbox=tuple(await self._json(f"{self._addresses.receiver}/inbox")),
        )

    async def _collection(self, name: str) -> dict[str, Fields]:
        return {found.id: found.to_dict() or {} async for found in self._firestore.collection(name).stream()}

    def _objects(self) -> frozenset[str]:
        names: list[str] = []
        marker = ""
        while True:
            page = self._cos.list_objects(Bucket=BUCKET, Marker=marker)
            names += [entry["Key"] for entry in page.get("Contents", ())]
            if page.get("IsTruncated") != "true":
                return frozenset(names)
            marker = page.get("NextMarker") or names[-1]

    async def _json(self, url: str) -> Any:
        answer = await self._http.get(url)
        answer.raise_for_status()
        return answer.json()
