"""How another project's tests get an embedded Firestore: one line in its conftest.py, one word in a test.

    pytest_plugins = ["localcloud.firestore.fixture"]

    def test_mine(firestore_emulator): ...

The server runs in a thread of its own, once per session, and is emptied after each test. Google's clients,
the blocking and the asynchronous ones, find it through FIRESTORE_EMULATOR_HOST.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass

import pytest

from localcloud.faults import Faults
from localcloud.firestore.server import RunningFirestore, start_firestore
from shared.clock import SystemClock


@dataclass(frozen=True, slots=True, kw_only=True)
class Emulator:
    host: str
    """host:port, as FIRESTORE_EMULATOR_HOST has it."""
    server: RunningFirestore
    loop: asyncio.AbstractEventLoop

    def reset(self) -> None:
        """Empties every database of every project."""

        async def clear() -> None:
            self.server.engine.clear_all()

        asyncio.run_coroutine_threadsafe(clear(), self.loop).result(10)


@pytest.fixture(scope="session")
def firestore_emulator_of_session() -> Iterator[Emulator]:
    started: Future[Emulator] = Future()
    stopping = asyncio.Event()

    async def serve() -> None:
        server = await start_firestore(clock=SystemClock(), faults=Faults())
        loop = asyncio.get_running_loop()
        started.set_result(Emulator(host=f"127.0.0.1:{server.port}", server=server, loop=loop))
        await stopping.wait()
        await server.stop()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    emulator = started.result(10)
    yield emulator
    emulator.loop.call_soon_threadsafe(stopping.set)
    thread.join(10)


@pytest.fixture
def firestore_emulator(
    firestore_emulator_of_session: Emulator, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Emulator]:
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", firestore_emulator_of_session.host)
    yield firestore_emulator_of_session
    firestore_emulator_of_session.reset()
