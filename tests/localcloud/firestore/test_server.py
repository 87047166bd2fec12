"""The server as a process and as a wire: durability, faults, and saying what it can't do."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.cloud.firestore_v1 import AsyncClient, Client, FieldFilter

from localcloud.faults import Rule
from localcloud.firestore import RunningFirestore

Connect = Callable[[int], AsyncClient]
ROOT = Path(__file__).parents[3]


async def launch(data: Path) -> tuple[asyncio.subprocess.Process, int]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "localcloud.firestore", "--port", "0", "--data", str(data)),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    line = (await process.stdout.readline()).decode()
    return process, int(line.rpartition(":")[2])


async def test_nothing_acknowledged_is_lost_by_kill_9(tmp_path: Path, connect: Connect) -> None:
    process, port = await launch(tmp_path)
    acknowledged: list[tuple[str, object]] = []
    enough = asyncio.Event()
    try:
        db = connect(port)
        finished = db.collection("things").where(filter=FieldFilter("even", "==", True))
        await finished.get()

        async def write(worker: int) -> None:
            for number in range(1000):
                name = f"{worker}-{number}"
                result = await db.document(f"things/{name}").set({"even": number % 2 == 0}, retry=None)
                acknowledged.append((name, result.update_time))
                if len(acknowledged) == 60:
                    enough.set()

        writers = [asyncio.create_task(write(worker)) for worker in range(4)]
        await asyncio.wait_for(enough.wait(), 20)
        process.kill()
        await asyncio.gather(*writers, return_exceptions=True)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
    process, port = await launch(tmp_path)
    try:
        db = connect(port)
        stored = {item.id: item.update_time async for item in db.collection("things").stream()}
        assert {name: stored.get(name) for name, _ in acknowledged} == dict(acknowledged)
        even = {name for name in stored if int(name.split("-")[1]) % 2 == 0}
        query = db.collection("things").where(filter=FieldFilter("even", "==", True))
        assert {item.id async for item in query.stream()} == even
        later = await db.document("things/later").set({})
        assert later.update_time > max(stored.values())
    finally:
        process.terminate()
        assert await process.wait() == 0


async def test_the_blocking_client_works_unchanged(server: RunningFirestore, db: AsyncClient) -> None:
    def use() -> object:
        client = Client(project="demo", credentials=AnonymousCredentials())
        client.document("things/one").set({"n": 1})
        found = [item.to_dict() for item in client.collection("things").stream()]
        client.close()
        return found

    assert await asyncio.to_thread(use) == [{"n": 1}]


async def test_projects_and_databases_are_apart(server: RunningFirestore, db: AsyncClient) -> None:
    await db.document("things/one").set({"n": 1})
    other = AsyncClient(project="demo", database="second", credentials=AnonymousCredentials())
    assert not (await other.document("things/one").get()).exists
    await other._firestore_api.transport.close()


async def test_committed_but_unanswered(server: RunningFirestore, db: AsyncClient) -> None:
    server.faults.add(Rule(operation="Commit", error="UNAVAILABLE", phase="after", times=1))
    thing = db.document("things/one")
    with pytest.raises(exceptions.ServiceUnavailable):
        await thing.create({"n": 1}, retry=None)
    assert (await thing.get()).exists
    with pytest.raises(exceptions.AlreadyExists):
        await thing.create({"n": 1})


async def test_an_injected_refusal_does_nothing(server: RunningFirestore, db: AsyncClient) -> None:
    server.faults.add(Rule(operation="Commit", error="ABORTED", times=1))
    thing = db.document("things/one")
    with pytest.raises(exceptions.Aborted):
        await thing.set({"n": 1})
    assert not (await thing.get()).exists
    server.faults.add(Rule(operation="RunQuery", error="RESOURCE_EXHAUSTED", times=1))
    with pytest.raises(exceptions.ResourceExhausted):
        await db.collection("things").get(retry=None)
