"""The RPCs that the client libraries use less, and plain HTTP on the same port."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.cloud.firestore_v1 import AsyncClient, Client, FieldFilter
from google.cloud.firestore_v1.query_profile import ExplainOptions
from google.cloud.firestore_v1.types import Document, Value, Write, WriteRequest

from localcloud.firestore import RunningFirestore


async def call(server: RunningFirestore, method: str, path: str) -> tuple[int, Any]:
    def ask() -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
        connection.request(method, path)
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        is_json = "json" in answer.headers["content-type"]
        return answer.status, json.loads(body) if is_json else body.decode()

    return await asyncio.to_thread(ask)


async def test_a_database_is_reset_over_http_on_the_port_of_grpc(
    server: RunningFirestore, db: AsyncClient
) -> None:
    other = AsyncClient(project="demo", database="second", credentials=AnonymousCredentials())
    await db.document("things/one").set({"n": 1})
    await other.document("things/one").set({"n": 1})
    path = "/emulator/v1/projects/demo/databases/%28default%29/documents"
    assert await call(server, "DELETE", path) == (200, {})
    assert not (await db.document("things/one").get()).exists
    assert [item async for item in db.collections()] == []
    assert (await other.document("things/one").get()).exists
    await other._firestore_api.transport.close()


async def test_a_reset_ends_the_transactions_of_the_database(
    server: RunningFirestore, db: AsyncClient
) -> None:
    thing = db.document("things/one")
    transaction = db.transaction()
    await transaction._begin()
    await thing.get(transaction=transaction)
    await call(server, "DELETE", "/emulator/v1/projects/demo/databases/(default)/documents")
    transaction.set(thing, {"n": 1})
    with pytest.raises(exceptions.Aborted):
        await transaction._commit()
    await asyncio.wait_for(thing.set({"n": 2}), 5)


async def test_plain_http_says_what_it_is_and_what_it_is_not(server: RunningFirestore) -> None:
    assert await call(server, "GET", "/") == (200, "Ok\n")
    status, said = await call(server, "GET", "/v1/projects/demo")
    assert (status, said["error"]["status"]) == (404, "NOT_FOUND")
    status, _ = await call(server, "GET", "/emulator/v1/projects/demo/databases/(default)/documents")
    assert status == 405


async def test_noise_on_the_port_disturbs_nobody(server: RunningFirestore, db: AsyncClient) -> None:
    for noise in (
        b"\x16\x03\x01\x02\x00\x01",
        b"PRI * HTTP/3.0\r\n\r\n",
        b"P",
        b"GET / HTTP/1.1\r\nA" * 9000,
    ):
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(noise)
        writer.close()
    await db.document("things/one").set({"n": 1})


async def test_a_write_stream_commits_each_request(db: AsyncClient) -> None:
    root = db._database_string
    answered: asyncio.Queue[Any] = asyncio.Queue()

    def named(name: str, number: int) -> Write:
        document = Document(name=f"{root}/documents/things/{name}", fields={"n": Value(integer_value=number)})
        return Write(update=document)

    async def requests() -> AsyncIterator[WriteRequest]:
        yield WriteRequest(database=root)
        for number in (1, 2):
            token = (await answered.get()).stream_token
            yield WriteRequest(stream_token=token, writes=[named("one", number), named(f"n{number}", number)])

    answers = []
    async for answer in await db._firestore_api.write(requests()):
        answers.append(answer)
        await answered.put(answer)
    assert answers[0].stream_id
    assert [len(answer.write_results) for answer in answers] == [0, 2, 2]
    assert answers[1].commit_time < answers[2].commit_time
    assert {item.id: item.get("n") for item in await db.collection("things").get()} == {
        "one": 2,
        "n1": 1,
        "n2": 2,
    }


async def test_a_write_stream_ends_at_a_write_that_fails(db: AsyncClient) -> None:
    root = db._database_string
    answered: asyncio.Queue[Any] = asyncio.Queue()

    async def requests() -> AsyncIterator[WriteRequest]:
        yield WriteRequest(database=root)
        token = (await answered.get()).stream_token
        missing = Write(delete=f"{root}/documents/things/x", current_document={"exists": True})
        yield WriteRequest(stream_token=token, writes=[missing])

    with pytest.raises(exceptions.NotFound):
        async for answer in await db._firestore_api.write(requests()):
            await answered.put(answer)


async def test_partitions_together_are_the_whole_group(server: RunningFirestore, db: AsyncClient) -> None:
    batch = db.batch()
    for number in range(400):
        batch.set(db.document(f"parents/{number % 3}/things/{number:03}"), {"n": number})
    await batch.commit()

    def read() -> list[list[str]]:
        client = Client(project="demo", credentials=AnonymousCredentials())
        parts = list(client.collection_group("things").get_partitions(3))
        found = [[item.reference.path for item in part.query().stream()] for part in parts]
        client.close()
        return found

    parts = await asyncio.to_thread(read)
    assert len(parts) == 3
    assert all(len(part) > 100 for part in parts)
    flat = [path for part in parts for path in part]
    assert flat == sorted(flat)
    assert len(set(flat)) == 400


async def test_partition_cursors_come_in_pages(db: AsyncClient) -> None:
    batch = db.batch()
    for number in range(520):
        batch.set(db.document(f"things/{number:03}"), {})
    await batch.commit()
    request = {
        "parent": f"{db._database_string}/documents",
        "structured_query": {"from_": [{"collection_id": "things", "all_descendants": True}]},
        "partition_count": 3,
        "page_size": 2,
    }
    pager = await db._firestore_api.partition_query(request)
    pages = [page async for page in pager.pages]
    assert [len(page.partitions) for page in pages] == [2, 1]


async def test_listings_show_the_past(db: AsyncClient) -> None:
    first = await db.document("old/a/sub/x").set({})
    await db.document("new/b").set({})
    await db.document("old/c").set({})
    at = first.update_time
    assert [item.id async for item in db.collections()] == ["new", "old"]
    assert [item.id async for item in db.collections(read_time=at)] == ["old"]
    assert [item.id async for item in db.collection("old").list_documents()] == ["a", "c"]
    assert [item.id async for item in db.collection("old").list_documents(read_time=at)] == ["a"]


async def test_a_document_lists_its_own_collections_only(db: AsyncClient) -> None:
    await db.document("things/one").set({})
    await db.document("things/one/left/x").set({})
    await db.document("things/one/right/x").set({})
    await db.document("things/one/right/x/deep/y").set({})
    assert [item.id async for item in db.document("things/one").collections()] == ["left", "right"]


async def test_an_explained_query_tells_its_index_and_its_cost(db: AsyncClient) -> None:
    for number in range(3):
        await db.document(f"things/{number}").set({"n": number})
    query = db.collection("things").where(filter=FieldFilter("n", ">", 0))
    found = await query.get(explain_options=ExplainOptions(analyze=True))
    metrics = found.get_explain_metrics()
    assert metrics.plan_summary.indexes_used == [
        {"query_scope": "Collection", "properties": "(n ASC, __name__ ASC)"}
    ]
    assert (len(found), metrics.execution_stats.results_returned) == (2, 2)
    assert metrics.execution_stats.read_operations == 2


async def test_the_metrics_of_a_query_come_with_its_last_document(db: AsyncClient) -> None:
    for number in range(2):
        await db.document(f"things/{number}").set({})
    request = {
        "parent": f"{db._database_string}/documents",
        "structured_query": {"from_": [{"collection_id": "things"}]},
        "explain_options": {"analyze": True},
    }
    answers = [answer async for answer in await db._firestore_api.run_query(request)]
    assert [bool(answer.document.name) for answer in answers] == [True, True]
    assert ["explain_metrics" in answer for answer in answers] == [False, True]
    request["structured_query"] = {"from_": [{"collection_id": "none"}]}
    (answer,) = [answer async for answer in await db._firestore_api.run_query(request)]
    assert "explain_metrics" in answer
    assert answer.read_time


async def test_a_plan_alone_reads_nothing(server: RunningFirestore, db: AsyncClient) -> None:
    await db.document("things/1").set({"n": 1})
    server.counts.reset()
    found = await db.collection("things").get(explain_options=ExplainOptions(analyze=False))
    assert list(found) == []
    assert server.counts.snapshot()["reads"] == {}


async def test_each_write_of_a_batch_write_has_its_own_status(db: AsyncClient) -> None:
    root = db._database_string
    await db.document("things/there").set({})
    writes = [
        {"update": {"name": f"{root}/documents/things/there"}, "current_document": {"exists": False}},
        {"update": {"name": f"{root}/documents/things/new"}},
    ]
    answer = await db._firestore_api.batch_write({"database": root, "writes": writes})
    assert [status.code for status in answer.status] == [6, 0]
    assert (await db.document("things/new").get()).exists
    with pytest.raises(exceptions.InvalidArgument):
        await db._firestore_api.batch_write({"database": root, "writes": [writes[1], writes[1]]})


async def test_counts_are_as_google_bills_them(server: RunningFirestore, db: AsyncClient) -> None:
    for number in range(3):
        await db.document(f"things/{number}").set({"n": number})
    await db.document("others/x").delete()
    server.counts.reset()
    await db.document("things/0").get()
    await db.document("things/missing").get()
    await db.collection("things").get()
    await db.collection("things").where(filter=FieldFilter("n", "==", 77)).get()
    await db.collection("things").count().get()
    await db.document("things/0").delete()
    counts = server.counts.snapshot()
    assert counts["reads"] == {"things": 1 + 1 + 3 + 1 + 1}
    assert counts["index_entries"] == {"things": 3}
    assert (counts["writes"], counts["deletes"]) == ({}, {"things": 1})
