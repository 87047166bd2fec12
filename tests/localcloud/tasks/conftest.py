"""What every test of the embedded Cloud Tasks needs: the service, Google's client, and a worker."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import grpc.aio
import pytest
import pytest_asyncio
from google.cloud import tasks_v2
from google.cloud.tasks_v2.services.cloud_tasks.transports import CloudTasksGrpcAsyncIOTransport
from google.protobuf import duration_pb2
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from localcloud.faults import Faults
from localcloud.http import serve_http
from localcloud.tasks import RunningTasks, start_tasks
from shared.clock import SystemClock

LOCATION = "projects/p/locations/asia-east1"
NUMBERS = count()
METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


@dataclass
class Call:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def task(self) -> str:
        return self.headers["x-cloudtasks-taskname"]


@dataclass
class Worker:
    """Keeps every call and answers 200, or whatever `answer` says."""

    base: str
    url: str = ""
    calls: list[Call] = field(default_factory=list)
    answer: Callable[[Call], Awaitable[Response]] | None = None
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    def begin(self) -> None:
        """Another test: a new address, so that late calls of the last one count for nobody."""
        self.url = f"{self.base}/work/{next(NUMBERS)}"
        self.calls = []
        self.answer = None

    async def take(self, request: Request) -> Response:
        call = Call(request.method, request.url.path, dict(request.headers), await request.body())
        if not self.url.endswith(call.path):
            return Response()
        async with self.changed:
            self.calls.append(call)
            self.changed.notify_all()
        return await self.answer(call) if self.answer else Response()

    async def until(self, number: int) -> list[Call]:
        """Wait for that many calls."""
        async with asyncio.timeout(10), self.changed:
            await self.changed.wait_for(lambda: len(self.calls) >= number)
        return self.calls


@dataclass
class Cloud:
    """Google's client with short words for what the tests do all the time."""

    client: tasks_v2.CloudTasksAsyncClient
    running: RunningTasks
    worker: Worker

    def queue_name(self, queue: str = "q") -> str:
        return f"{LOCATION}/queues/{queue}"

    async def queue(self, queue: str = "q", **settings: Any) -> str:
        made = await self.client.create_queue(
            parent=LOCATION, queue=tasks_v2.Queue(name=self.queue_name(queue), **settings)
        )
        return str(made.name)

    async def task(
        self, name: str | None = None, *, queue: str = "q", url: str | None = None, **fields: Any
    ) -> tasks_v2.Task:
        parent = self.queue_name(queue)
        request = fields.pop("request", {})
        task = tasks_v2.Task(
            http_request=tasks_v2.HttpRequest(url=url or self.worker.url, **request), **fields
        )
        if name:
            task.name = f"{parent}/tasks/{name}"
        return await self.client.create_task(parent=parent, task=task)

    async def gone(self, name: str) -> None:
        """Wait until the task has left its queue."""

        async def is_gone() -> bool:
            listed = await self.client.list_tasks(parent=name[: name.index("/tasks/")])
            return name not in [task.name async for task in listed]

        await eventually(is_gone)


async def eventually(claim: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(10):
        while not await claim():
            await asyncio.sleep(0.005)


def quick_retries(**more: Any) -> tasks_v2.RetryConfig:
    return tasks_v2.RetryConfig(
        min_backoff=duration_pb2.Duration(nanos=1_000_000),
        max_backoff=duration_pb2.Duration(nanos=5_000_000),
        **more,
    )


@contextlib.asynccontextmanager
async def connected(port: int) -> AsyncIterator[tasks_v2.CloudTasksAsyncClient]:
    channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
    try:
        yield tasks_v2.CloudTasksAsyncClient(transport=CloudTasksGrpcAsyncIOTransport(channel=channel))
    finally:
        await channel.close()


@pytest.fixture
def answering() -> Callable[..., Callable[[Call], Awaitable[Response]]]:
    """An answer for each call in turn, the last one for ever."""

    def make(*statuses: int, headers: dict[str, str] | None = None) -> Callable[[Call], Awaitable[Response]]:
        left = list(statuses)

        async def answer(call: Call) -> Response:
            return Response(status_code=left.pop(0) if len(left) > 1 else left[0], headers=headers)

        return answer

    return make


@pytest.fixture
def retries() -> Callable[..., tasks_v2.RetryConfig]:
    return quick_retries


@pytest.fixture
def connect() -> Callable[[int], contextlib.AbstractAsyncContextManager[tasks_v2.CloudTasksAsyncClient]]:
    return connected


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_worker() -> AsyncIterator[Worker]:
    """Starting and stopping HTTP servers takes longer than most tests: one serves all."""
    taking: list[Worker] = []

    async def take(request: Request) -> Response:
        return await taking[0].take(request)

    app = Starlette(routes=[Route("/{path:path}", take, methods=METHODS)])
    server = await serve_http(app, "127.0.0.1", 0)
    taking.append(Worker(server.url))
    yield taking[0]
    await server.stop()


@pytest.fixture
def worker(shared_worker: Worker) -> Worker:
    shared_worker.begin()
    return shared_worker


@pytest.fixture
def cloud_on(
    worker: Worker,
) -> Callable[..., contextlib.AbstractAsyncContextManager[Cloud]]:
    """A service of the test's own, with its own clock or data directory."""

    @contextlib.asynccontextmanager
    async def start(**options: Any) -> AsyncIterator[Cloud]:
        settings = {"clock": SystemClock(), "faults": Faults(seed=1), **options}
        running = await start_tasks(**settings)
        try:
            async with connected(running.port) as client:
                yield Cloud(client, running, worker)
        finally:
            await running.stop()

    return start


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_running() -> AsyncIterator[RunningTasks]:
    running = await start_tasks(clock=SystemClock(), faults=Faults(seed=1))
    yield running
    await running.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def cloud(shared_running: RunningTasks, worker: Worker) -> AsyncIterator[Cloud]:
    """The one service, with nothing in it."""
    async with connected(shared_running.port) as client:
        yield Cloud(client, shared_running, worker)
        shared_running.faults.clear()
    shared_running.reset()
    shared_running.counts.reset()


class FastClock:
    """A clock that runs many times as fast as the wall's."""

    def __init__(self, factor: float) -> None:
        self._factor = factor
        self._start = datetime.now(UTC)

    def now(self) -> datetime:
        return self._start + (datetime.now(UTC) - self._start) * self._factor

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self._factor)


class VirtualClock:
    """Time that stands still until `run` moves it from sleeper to sleeper."""

    def __init__(self) -> None:
        self._now = datetime(2026, 1, 1, tzinfo=UTC)
        self._sleepers: list[tuple[datetime, int, asyncio.Future[None]]] = []
        self._numbers = count()

    def now(self) -> datetime:
        return self._now

    async def sleep(self, seconds: float) -> None:
        waking: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + timedelta(seconds=seconds), next(self._numbers), waking))
        await waking

    async def run(self, seconds: float) -> None:
        end = self._now + timedelta(seconds=seconds)
        await self._settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            at, _, waking = heapq.heappop(self._sleepers)
            if waking.done():
                continue
            self._now = max(self._now, at)
            waking.set_result(None)
            await self._settle()
        self._now = end
        await self._settle()

    async def _settle(self) -> None:
        """Let everything run that can run without time passing."""
        for _ in range(12):
            await asyncio.sleep(0)


@pytest.fixture
def fast_clock() -> Callable[[float], FastClock]:
    return FastClock


@pytest.fixture
def virtual() -> VirtualClock:
    return VirtualClock()
