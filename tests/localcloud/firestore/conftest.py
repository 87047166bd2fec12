"""An embedded Firestore for each test, and Google's own client connected to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud.firestore_v1 import AsyncClient

from localcloud.faults import Faults
from localcloud.firestore import RunningFirestore, start_firestore
from shared.clock import SystemClock

Start = Callable[..., Awaitable[RunningFirestore]]
Connect = Callable[[int], AsyncClient]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    async with AsyncExitStack() as stack:

        async def begin(**options: Any) -> RunningFirestore:
            running = await start_firestore(**{"clock": SystemClock(), "faults": Faults(), **options})
            stack.push_async_callback(running.stop)
            return running

        yield begin


@pytest.fixture
async def connect(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Connect]:
    clients: list[AsyncClient] = []

    def to(port: int) -> AsyncClient:
        monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", f"127.0.0.1:{port}")
        clients.append(AsyncClient(project="demo", credentials=AnonymousCredentials()))
        return clients[-1]

    yield to
    for client in clients:
        if client._firestore_api_internal is not None:
            await client._firestore_api_internal.transport.close()


@pytest.fixture
async def server(start: Start) -> RunningFirestore:
    return await start()


@pytest.fixture
async def db(server: RunningFirestore, connect: Connect) -> AsyncClient:
    return connect(server.port)
