"""The whole system on free ports, for tests: the real functions as processes, on the embedded cloud."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import httpx2
from google.api_core.exceptions import NotFound
from google.cloud.firestore import AsyncClient

from localcloud.environment import PROJECT, SEED_KEYS, Key
from localcloud.faults import Rule
from localcloud.progress import FINAL
from localcloud.queues import call_once, tasks_client
from localcloud.services import ServiceName
from localcloud.supervisor import FUNCTIONS, Function, Options, Supervisor


class System:
    """A running system, and what tests ask of it."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.supervisor = supervisor
        self.http: httpx2.AsyncClient = supervisor.http
        self.entry = supervisor.urls["entry"]
        self.addresses = supervisor.addresses
        with mock.patch.dict(os.environ, FIRESTORE_EMULATOR_HOST=self.addresses.firestore):
            self.firestore = AsyncClient(project=PROJECT)

    def wish(self, *, count: int = 1, **more: Any) -> dict[str, Any]:
        """The body of a request for `count` shots of the sample garment; `more` replaces or adds fields."""
        params = {"scene": "商业摄影", "style": "现代简约", "count": count}
        mode = "photo_set" if count > 1 else "normal"
        return {"mode": mode, "images": [self.addresses.sample], "params": params, **more}

    async def post(self, body: Any, *, headers: Mapping[str, str] | None = None) -> httpx2.Response:
        # Escaped, so that a test can send what is not valid Unicode.
        content = json.dumps(body).encode()
        typed = {"content-type": "application/json", **(headers or {})}
        return await self.http.post(f"{self.entry}/tasks", content=content, headers=typed)

    async def submit(self, *, count: int = 1, headers: Mapping[str, str] | None = None, **more: Any) -> str:
        """The id of a new task."""
        answer = await self.post(self.wish(count=count, **more), headers=headers)
        assert answer.status_code == 202, answer.text
        task_id: str = answer.json()["taskId"]
        return task_id

    async def task(self, task_id: str) -> dict[str, Any]:
        answer = await self.http.get(f"{self.entry}/tasks/{task_id}")
        assert answer.status_code == 200, answer.text
        task: dict[str, Any] = answer.json()
        return task

    async def wait_final(self, task_id: str, *, seconds: float = 60) -> dict[str, Any]:
        """The task, once it has ended; a child that dies meanwhile is reported at once."""
        task: dict[str, Any] = {}
        try:
            async with asyncio.timeout(seconds):
                while (task := await self.task(task_id))["status"] not in FINAL:
                    self.supervisor.check()
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise AssertionError(f"not final after {seconds} s: {task}") from None
        return task

    def log_lines(self, function: Function) -> list[dict[str, Any]]:
        """What a function has logged, line by line."""
        text = (self.supervisor.logs / f"{function}.log").read_text("utf-8", "replace")
        return [json.loads(line) for line in text.splitlines() if line.startswith("{")]

    async def document(self, path: str) -> dict[str, Any] | None:
        """A document of Firestore's, as it is stored."""
        snapshot = await self.firestore.document(path).get()
        fields: dict[str, Any] | None = snapshot.to_dict()
        return fields

    async def wait_document(
        self, path: str, wanted: Callable[[dict[str, Any]], bool], *, seconds: float = 20
    ) -> dict[str, Any]:
        """A document, once it is as wanted."""
        found: dict[str, Any] | None = None
        try:
            async with asyncio.timeout(seconds):
                while (found := await self.document(path)) is None or not wanted(found):
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"{path} after {seconds} s: {found}") from None
        return found

    async def call_complete(self, body: bytes) -> None:
        """As Cloud Tasks calls it; until it has been answered with a success."""
        address = self.addresses.tasks
        name = await call_once(address, self.addresses.complete, body)
        async with tasks_client(address) as client, asyncio.timeout(20):
            with suppress(NotFound):
                while True:
                    await client.get_task(name=name)
                    await asyncio.sleep(0.05)

    async def stats(self) -> dict[str, Any]:
        """What the fake Gemini counted: calls and highest concurrency, per key and in all."""
        stats: dict[str, Any] = (await self.http.get(f"{self.addresses.gemini}/stats")).json()
        return stats

    async def forget_stats(self) -> None:
        await self.http.delete(f"{self.addresses.gemini}/stats")

    async def callbacks(self, task_id: str) -> list[dict[str, Any]]:
        """The deliveries for one task so far: {webhookId, receivedAt, body, verified}."""
        inbox = (await self.http.get(f"{self.addresses.receiver}/inbox")).json()
        return [entry for entry in inbox if entry["body"].get("taskId") == task_id]

    async def wait_callbacks(self, task_id: str, count: int, *, seconds: float = 20) -> list[dict[str, Any]]:
        """The deliveries for one task, once there are `count`."""
        found: list[dict[str, Any]] = []
        try:
            async with asyncio.timeout(seconds):
                while len(found := await self.callbacks(task_id)) < count:
                    self.supervisor.check()
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise AssertionError(f"{len(found)} callbacks after {seconds} s, not {count}") from None
        return found

    async def counts(self, service: ServiceName) -> dict[str, dict[str, int]]:
        return await self.supervisor.service(service).counts()

    async def misbehave(self, service: ServiceName, *rules: Rule) -> None:
        await self.supervisor.service(service).misbehave(*rules)

    async def behave(self) -> None:
        """Take away every fault."""
        for service in self.supervisor.services:
            await self.supervisor.service(service).behave()


@asynccontextmanager
async def embedded(
    *,
    latency: float = 0.05,
    keys: Sequence[Key] = SEED_KEYS,
    generate_workers: int = 1,
    in_process: bool = False,
    settings: Mapping[str, str] | None = None,
    faults: Mapping[ServiceName, Sequence[Rule]] | None = None,
    functions: Sequence[Function] = FUNCTIONS,
    source: Path | None = None,
    sweep_seconds: float = 60,
) -> AsyncIterator[System]:
    """Everything on free ports; nothing of the shell's settings gets in. After an error the logs are kept."""
    state = Path(tempfile.mkdtemp(prefix="lookbook-"))
    options = Options(
        keys=keys,
        gemini_latency=latency,
        generate_workers=generate_workers,
        in_process=in_process,
        extra=dict(settings or {}),
        faults=dict(faults or {}),
        functions=functions,
        state=state,
        sweep_seconds=sweep_seconds,
        **({"source": source} if source else {}),
    )
    async with Supervisor(options) as supervisor:
        yield System(supervisor)
    shutil.rmtree(state)
