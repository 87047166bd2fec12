"""Wake-ups: Cloud Tasks that tell a function to look at Firestore.

Names are hashes of what is to be done, so that a repeated wake-up is one wake-up; ALREADY_EXISTS is success.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import grpc
from google.api_core import exceptions as gexc
from google.api_core.retry import AsyncRetry, if_exception_type
from google.cloud import tasks_v2
from google.protobuf import duration_pb2, timestamp_pb2

from shared.events import Event
from shared.ids import digest

_AT_ONCE: Final = 64
_RETRY: Final = AsyncRetry(
    predicate=if_exception_type(
        gexc.ServiceUnavailable, gexc.ResourceExhausted, gexc.DeadlineExceeded, gexc.InternalServerError
    ),
    initial=0.1,
    maximum=2.0,
    multiplier=2.0,
    timeout=15.0,
)


def tasks_client(emulator: str) -> tasks_v2.CloudTasksAsyncClient:
    """Call it inside the running loop: the channel belongs to the loop it was made in."""
    if not emulator:
        return tasks_v2.CloudTasksAsyncClient()
    from google.cloud.tasks_v2.services.cloud_tasks.transports import CloudTasksGrpcAsyncIOTransport

    channel = grpc.aio.insecure_channel(emulator)
    return tasks_v2.CloudTasksAsyncClient(transport=CloudTasksGrpcAsyncIOTransport(channel=channel))


@dataclass(frozen=True, slots=True, kw_only=True)
class Wake:
    queue: str
    url: str
    name: str
    body: dict[str, Any]
    trace_id: str
    at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bell:
    """Makes wake-ups; `ring` sends them."""

    client: tasks_v2.CloudTasksAsyncClient
    project: str
    location: str
    generate_queue: str
    bulk_queue: str
    complete_queue: str
    events_queue: str
    generate_url: str
    complete_url: str
    service_account: str
    audience: str
    dispatch_seconds: int = 900

    def shot(
        self,
        task_id: str,
        index: int,
        *,
        version: str,
        trace_id: str,
        attempts: int = 0,
        waits: int = 0,
        fresh: bool = False,
        bulk: bool = False,
        stashed: bool = False,
        at: datetime | None = None,
    ) -> Wake:
        """`version`: of the shot's document as the sender saw it. The receiver can claim it without reading it."""
        return Wake(
            queue=self.bulk_queue if bulk else self.generate_queue,
            url=self.generate_url,
            name=digest("shot", task_id, index, version, waits),
            body={
                "taskId": task_id,
                "index": index,
                "version": version,
                "attempts": attempts,
                "waits": waits,
                "fresh": fresh,
                "bulk": bulk,
                "stashed": stashed,
            },
            trace_id=trace_id,
            at=at,
        )

    def events(self, task_id: str, told: Sequence[Event]) -> Wake:
        """Events that have just been written. They never change, so that nobody needs to read them again."""
        return Wake(
            queue=self.complete_queue,
            url=self.complete_url,
            name=digest("events", *(event.event_id for event in told)),
            body={"taskId": task_id, "events": [event.envelope() for event in told]},
            trace_id=told[0].trace_id,
        )

    def unpublished(self, task_id: str, event_id: str, *, trace_id: str, round_: int) -> Wake:
        """An event that seems not to have been published: `complete` looks for itself."""
        return Wake(
            queue=self.complete_queue,
            url=self.complete_url,
            name=digest("unpublished", event_id, round_),
            body={"taskId": task_id, "eventIds": [event_id]},
            trace_id=trace_id,
        )

    def settle(self, task_id: str, *, trace_id: str, round_: int) -> Wake:
        """A task that may have to be brought to its end."""
        return Wake(
            queue=self.complete_queue,
            url=self.complete_url,
            name=digest("settle", task_id, round_),
            body={"taskId": task_id},
            trace_id=trace_id,
        )

    def delivery(
        self, task_id: str, event_id: str, subscriber: str, *, trace_id: str, at: datetime, round_: int = 0
    ) -> Wake:
        """A second and further try for one subscriber; Cloud Tasks owns its backoff."""
        return Wake(
            queue=self.events_queue,
            url=self.complete_url,
            name=digest("delivery", event_id, subscriber, round_),
            body={"taskId": task_id, "eventIds": [event_id], "subscriber": subscriber},
            trace_id=trace_id,
            at=at,
        )

    async def ring(self, wakes: Iterable[Wake]) -> None:
        """All of them, some at once. Raises if any could not be sent; the others are sent all the same."""
        gate = asyncio.Semaphore(_AT_ONCE)
        results = await asyncio.gather(*(self._send(wake, gate) for wake in wakes), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _send(self, wake: Wake, gate: asyncio.Semaphore) -> None:
        parent = self.client.queue_path(self.project, self.location, wake.queue)
        task = tasks_v2.Task(
            name=f"{parent}/tasks/{wake.name}",
            dispatch_deadline=duration_pb2.Duration(seconds=self.dispatch_seconds),
            http_request=tasks_v2.HttpRequest(
                http_method=tasks_v2.HttpMethod.POST,
                url=wake.url,
                headers={
                    "Content-Type": "application/json",
                    "traceparent": f"00-{wake.trace_id}-{digest(wake.name)[:16]}-01",
                },
                body=json.dumps(wake.body, separators=(",", ":")).encode(),
                oidc_token=tasks_v2.OidcToken(
                    service_account_email=self.service_account, audience=self.audience
                ),
            ),
        )
        if wake.at is not None:
            due = timestamp_pb2.Timestamp()
            due.FromDatetime(wake.at)
            task.schedule_time = due
        async with gate:
            try:
                await self.client.create_task(parent=parent, task=task, timeout=5.0, retry=_RETRY)
            except gexc.AlreadyExists:
                return
