"""Listen: on_snapshot of the blocking client, and what goes over the stream underneath."""

from __future__ import annotations

import asyncio
import queue
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.cloud.firestore_v1 import AsyncClient, Client, FieldFilter
from google.cloud.firestore_v1.types import ListenRequest, StructuredQuery, Target, TargetChange

from localcloud.faults import Rule
from localcloud.firestore import RunningFirestore

Kind = TargetChange.TargetChangeType


class Stream:
    """One Listen stream: targets go in, responses come out."""

    def __init__(self, db: AsyncClient) -> None:
        self._db = db
        self._outgoing: asyncio.Queue[ListenRequest | None] = asyncio.Queue()
        self._incoming: AsyncIterator[Any] | None = None

    async def send(self, **fields: Any) -> None:
        await self._outgoing.put(ListenRequest(database=self._db._database_string, **fields))
        if self._incoming is None:
            self._incoming = aiter(await self._db._firestore_api.listen(self._requests()))

    async def watch_query(self, number: int, collection: str = "things", **fields: Any) -> None:
        selector = StructuredQuery.CollectionSelector(collection_id=collection)
        limit = fields.pop("limit", None)
        asked = StructuredQuery(from_=[selector], limit=limit)
        root = f"{self._db._database_string}/documents"
        target = Target.QueryTarget(parent=root, structured_query=asked)
        await self.send(add_target=Target(target_id=number, query=target, **fields))

    async def watch_documents(self, number: int, *paths: str, **fields: Any) -> None:
        names = [f"{self._db._database_string}/documents/{path}" for path in paths]
        target = Target.DocumentsTarget(documents=names)
        await self.send(add_target=Target(target_id=number, documents=target, **fields))

    async def next(self) -> Any:
        assert self._incoming is not None
        return await asyncio.wait_for(anext(self._incoming), 5)

    async def batch(self) -> list[str]:
        """What is said up to the next global snapshot, in short."""
        said: list[str] = []
        while True:
            answer = await self.next()
            said.append(in_short(answer))
            change = answer.target_change
            if said[-1] == "NO_CHANGE []":
                self.token, self.read_time = change.resume_token, change.read_time
                return said[:-1]

    async def end(self) -> None:
        await self._outgoing.put(None)

    async def _requests(self) -> AsyncIterator[ListenRequest]:
        while (request := await self._outgoing.get()) is not None:
            yield request


def in_short(answer: Any) -> str:
    kind = answer._pb.WhichOneof("response_type")
    if kind == "target_change":
        change = answer.target_change
        return f"{Kind(change.target_change_type).name} {list(change.target_ids)}"
    if kind == "filter":
        return f"filter {answer.filter.target_id}={answer.filter.count}"
    part = getattr(answer, kind)
    name = part.document.name if kind == "document_change" else part.document
    into = list(part.target_ids) if kind == "document_change" else []
    return (
        f"{kind.removeprefix('document_')} {name.rpartition('/')[2]} {into} {list(part.removed_target_ids)}"
    )


@asynccontextmanager
async def a_stream(db: AsyncClient) -> AsyncIterator[Stream]:
    stream = Stream(db)
    yield stream
    await stream.end()


@pytest.fixture
def blocking(server: RunningFirestore, db: AsyncClient) -> Iterator[Client]:
    client = Client(project="demo", credentials=AnonymousCredentials())
    yield client
    client.close()


class Seen:
    """What on_snapshot was called with, one call at a time."""

    def __init__(self) -> None:
        self._calls: queue.Queue[tuple[list[Any], list[str]]] = queue.Queue()

    def __call__(self, documents: list[Any], changes: list[Any], _: Any) -> None:
        said = [f"{change.type.name} {change.document.id}" for change in changes]
        self._calls.put((documents, said))

    async def next(self) -> tuple[list[Any], list[str]]:
        return await asyncio.to_thread(self._calls.get, timeout=5)


async def test_a_query_is_watched_by_the_blocking_client(blocking: Client, db: AsyncClient) -> None:
    things = db.collection("things")
    await things.document("b").set({"n": 2})
    seen = Seen()
    query = blocking.collection("things").where(filter=FieldFilter("n", ">", 0)).order_by("n")
    watch = await asyncio.to_thread(query.on_snapshot, seen)
    assert [item.id for item in (await seen.next())[0]] == ["b"]
    await things.document("a").set({"n": 1})
    documents, changes = await seen.next()
    assert ([item.id for item in documents], changes) == (["a", "b"], ["ADDED a"])
    await things.document("a").update({"n": 3})
    documents, changes = await seen.next()
    assert ([item.id for item in documents], changes) == (["b", "a"], ["MODIFIED a"])
    await things.document("a").update({"n": -1})
    assert (await seen.next())[1] == ["REMOVED a"]
    await things.document("b").delete()
    documents, changes = await seen.next()
    assert (documents, changes) == ([], ["REMOVED b"])
    await asyncio.to_thread(watch.unsubscribe)


async def test_a_document_is_watched_by_the_blocking_client(blocking: Client, db: AsyncClient) -> None:
    one = db.document("things/one")
    seen = Seen()
    watch = await asyncio.to_thread(blocking.document("things/one").on_snapshot, seen)
    await seen.next()
    await one.set({"n": 1})
    assert (await seen.next())[0][0].to_dict() == {"n": 1}
    await asyncio.to_thread(watch.unsubscribe)


async def test_a_broken_stream_is_resumed_without_missing_anything(
    blocking: Client, db: AsyncClient, server: RunningFirestore
) -> None:
    things = db.collection("things")
    await things.document("kept").set({"n": 1})
    await things.document("gone").set({"n": 1})
    seen = Seen()
    watch = await asyncio.to_thread(blocking.collection("things").on_snapshot, seen)
    assert len((await seen.next())[0]) == 2
    server.faults.add(Rule(operation="Listen", phase="after", error="UNAVAILABLE", times=1))
    async with asyncio.TaskGroup() as group:
        group.create_task(things.document("gone").delete())
        group.create_task(things.document("new").set({"n": 2}))
    documents: list[Any] = []
    while {item.id for item in documents} != {"kept", "new"}:
        documents, _ = await seen.next()
    await asyncio.to_thread(watch.unsubscribe)


async def test_a_target_starts_with_what_there_is_and_then_is_current(db: AsyncClient) -> None:
    await db.document("things/a").set({"n": 1})
    async with a_stream(db) as stream:
        await stream.watch_query(7)
        assert await stream.batch() == ["ADD [7]", "change a [7] []", "CURRENT [7]"]
        assert stream.token
        assert stream.read_time is not None


async def test_several_targets_share_a_stream_and_its_snapshots(db: AsyncClient) -> None:
    async with a_stream(db) as stream:
        await stream.watch_query(1)
        await stream.batch()
        await stream.watch_documents(2, "things/a", "things/b")
        assert await stream.batch() == ["ADD [2]", "delete a [] [2]", "delete b [] [2]", "CURRENT [2]"]
        batch = db.batch()
        batch.set(db.document("things/a"), {"n": 1})
        batch.set(db.document("things/c"), {"n": 1})
        await batch.commit()
        assert await stream.batch() == ["change a [1, 2] []", "change c [1] []"]
        await stream.send(remove_target=1)
        assert in_short(await stream.next()) == "REMOVE [1]"
        await db.document("things/c").delete()
        await db.document("things/a").delete()
        assert await stream.batch() == ["delete a [] [2]"]


async def test_a_document_that_falls_out_of_a_window_is_removed_not_deleted(db: AsyncClient) -> None:
    await db.document("things/b").set({})
    async with a_stream(db) as stream:
        await stream.watch_query(1, limit=1)
        await stream.batch()
        await db.document("things/a").set({})
        assert sorted(await stream.batch()) == ["change a [1] []", "remove b [] [1]"]
        await db.document("things/a").delete()
        assert sorted(await stream.batch()) == ["change b [1] []", "delete a [] [1]"]


async def test_a_resumed_target_is_told_only_what_changed(db: AsyncClient) -> None:
    for name in ("same", "changed", "deleted"):
        await db.document(f"things/{name}").set({"n": 1})
    async with a_stream(db) as stream:
        await stream.watch_query(1)
        await stream.batch()
    await db.document("things/changed").set({"n": 2})
    await db.document("things/deleted").delete()
    async with a_stream(db) as again:
        await again.watch_query(1, resume_token=stream.token)
        said = await again.batch()
    assert said[0] == "ADD [1]"
    assert sorted(said[1:3]) == ["change changed [1] []", "delete deleted [] [1]"]
    assert said[3:] == ["filter 1=2", "CURRENT [1]"]
    async with a_stream(db) as third:
        await third.watch_query(1, read_time=again.read_time)
        assert await third.batch() == ["ADD [1]", "filter 1=2", "CURRENT [1]"]


async def test_a_token_from_before_a_reset_starts_the_target_anew(
    db: AsyncClient, server: RunningFirestore
) -> None:
    await db.document("things/old").set({})
    async with a_stream(db) as stream:
        await stream.watch_query(1)
        await stream.batch()
        token = stream.token
        url = f"http://127.0.0.1:{server.port}/emulator/v1/{db._database_string}/documents"
        request = urllib.request.Request(url, method="DELETE")
        await asyncio.to_thread(lambda: urllib.request.urlopen(request).close())  # noqa: S310
        assert await stream.batch() == ["delete old [] [1]"]
    await db.document("things/new").set({})
    async with a_stream(db) as again:
        await again.watch_query(1, resume_token=token)
        said = await again.batch()
    assert said == ["ADD [1]", "RESET [1]", "change new [1] []", "filter 1=1", "CURRENT [1]"]


async def test_a_target_that_is_wanted_once_is_removed_when_it_is_current(db: AsyncClient) -> None:
    async with a_stream(db) as stream:
        await stream.watch_query(1, once=True)
        assert await stream.batch() == ["ADD [1]", "CURRENT [1]"]
        assert in_short(await stream.next()) == "REMOVE [1]"


async def test_a_bad_target_is_removed_with_its_cause_and_the_stream_lives(db: AsyncClient) -> None:
    async with a_stream(db) as stream:
        await stream.watch_documents(3, "things/a/odd")
        refused = (await stream.next()).target_change
        assert (Kind(refused.target_change_type), refused.cause.code) == (Kind.REMOVE, 3)
        await stream.watch_query(4)
        assert await stream.batch() == ["ADD [4]", "CURRENT [4]"]


async def test_what_happens_in_another_database_is_not_told(db: AsyncClient) -> None:
    other = AsyncClient(project="demo", database="second", credentials=AnonymousCredentials())
    async with a_stream(db) as stream:
        await stream.watch_query(1)
        await stream.batch()
        await other.document("things/elsewhere").set({})
        await db.document("things/here").set({})
        assert await stream.batch() == ["change here [1] []"]
    await other._firestore_api.transport.close()


async def test_a_server_with_open_streams_stops_at_once(server: RunningFirestore, db: AsyncClient) -> None:
    stream = Stream(db)
    await stream.watch_query(1)
    await stream.batch()
    await asyncio.wait_for(server.stop(), 5)
    with pytest.raises((exceptions.GoogleAPICallError, StopAsyncIteration)):
        await stream.next()
