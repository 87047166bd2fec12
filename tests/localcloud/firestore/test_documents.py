"""Writing and reading single documents through Google's client."""

from __future__ import annotations

import asyncio
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest
from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import firestore_v1 as firestore
from google.cloud.firestore_v1 import AsyncClient, Client
from google.cloud.firestore_v1.types import Write
from google.cloud.firestore_v1.vector import Vector

from localcloud.firestore import RunningFirestore


async def test_every_type_of_value_comes_back_as_it_was_written(db: AsyncClient) -> None:
    written = {
        "null": None,
        "true": True,
        "int": -(2**63),
        "double": 1.5,
        "text": "连衣裙\x00",
        "bytes": b"\x00\xff",
        "time": datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
        "ref": db.document("a/b"),
        "geo": firestore.GeoPoint(1.5, -2.5),
        "list": [1, "a", {"x": None}],
        "map": {"a.b": {"`": 1}, "empty": {}},
        "vector": Vector([1.0, 2.0]),
    }
    await db.document("things/one").set(written)
    snapshot = await db.document("things/one").get()
    assert snapshot.to_dict() == written
    assert snapshot.create_time == snapshot.update_time


async def test_found_missing_and_masked_documents_come_in_one_batch(db: AsyncClient) -> None:
    await db.document("things/one").set({"a": {"b": 1, "c": 2}, "d": 3})
    references = [db.document("things/one"), db.document("things/none")]
    got = {item.id: item async for item in db.get_all(references, field_paths=["a.b"])}
    assert got["one"].to_dict() == {"a": {"b": 1}}
    assert not got["none"].exists


async def test_merge_update_and_field_deletion_touch_only_what_they_name(db: AsyncClient) -> None:
    thing = db.document("things/one")
    await thing.set({"a": {"x": 1, "y": 2}, "b": 1, "c.d": 5})
    await thing.set({"a": {"z": 3}}, merge=True)
    await thing.update({"b": firestore.DELETE_FIELD, "a.x": 9, "`c.d`": 6})
    assert (await thing.get()).to_dict() == {"a": {"x": 9, "y": 2, "z": 3}, "c.d": 6}


async def test_create_refuses_an_existing_document_and_update_a_missing_one(db: AsyncClient) -> None:
    thing = db.document("things/one")
    with pytest.raises(exceptions.NotFound):
        await thing.update({"a": 1})
    await thing.create({"a": 1})
    with pytest.raises(exceptions.AlreadyExists):
        await thing.create({"a": 2})
    assert (await thing.get()).to_dict() == {"a": 1}


async def test_update_time_fences_a_write_that_comes_too_late(db: AsyncClient) -> None:
    thing = db.document("things/one")
    first = await thing.set({"a": 1})
    second = await thing.update({"a": 2}, option=db.write_option(last_update_time=first.update_time))
    assert second.update_time > first.update_time
    with pytest.raises(exceptions.FailedPrecondition):
        await thing.update({"a": 3}, option=db.write_option(last_update_time=first.update_time))
    with pytest.raises(exceptions.FailedPrecondition):
        await thing.delete(option=db.write_option(last_update_time=first.update_time))
    await thing.delete(option=db.write_option(last_update_time=second.update_time))
    with pytest.raises(exceptions.NotFound):
        await thing.delete(option=db.write_option(exists=True))


async def test_a_write_that_changes_nothing_keeps_the_update_time(db: AsyncClient) -> None:
    thing = db.document("things/one")
    first = await thing.set({"a": 1})
    assert (await thing.set({"a": 1})).update_time == first.update_time


async def test_one_failing_precondition_leaves_nothing_of_a_large_commit(db: AsyncClient) -> None:
    await db.document("things/600").set({"old": True})
    batch = db.batch()
    for number in range(1200):
        batch.create(db.document(f"things/{number}"), {"n": number})
    with pytest.raises(exceptions.AlreadyExists):
        await batch.commit()
    assert [item.id async for item in db.collection("things").stream()] == ["600"]


async def test_a_commit_of_over_a_thousand_writes_has_one_time(db: AsyncClient) -> None:
    batch = db.batch()
    for number in range(1200):
        batch.create(db.document(f"things/{number}"), {"n": number})
    results = await batch.commit()
    assert len(results) == 1200
    assert {result.update_time for result in results} == {batch.commit_time}
    assert (await db.collection("things").count().get())[0][0].value == 1200


async def test_commit_times_grow_strictly(db: AsyncClient) -> None:
    results = await asyncio.gather(*(db.document(f"things/{n}").set({"n": n}) for n in range(40)))
    assert len({result.update_time for result in results}) == 40


async def test_numeric_transforms_follow_the_rules_for_mixed_and_missing_numbers(db: AsyncClient) -> None:
    thing = db.document("things/one")
    await thing.set({"int": 1, "big": 2**63 - 1, "text": "x", "max": 5, "min": 5})
    result = await thing.update(
        {
            "int": firestore.Increment(2),
            "big": firestore.Increment(10),
            "text": firestore.Increment(1),
            "new": firestore.Increment(0.5),
            "max": firestore.Maximum(5.0),
            "min": firestore.Minimum(4.5),
        }
    )
    stored = (await thing.get()).to_dict()
    assert stored == {"int": 3, "big": 2**63 - 1, "text": 1, "new": 0.5, "max": 5, "min": 4.5}
    assert isinstance(stored["max"], int)
    # The client sends transforms sorted by field: big, int, …
    assert [value.integer_value for value in result.transform_results][:2] == [2**63 - 1, 3]


async def test_array_and_time_transforms(db: AsyncClient) -> None:
    thing = db.document("things/one")
    await thing.set({"union": [1, "a"], "gone": [1, 2, 1.0, 3]})
    result = await thing.update(
        {
            "union": firestore.ArrayUnion([1.0, "b", "b"]),
            "gone": firestore.ArrayRemove([1]),
            "at": firestore.SERVER_TIMESTAMP,
        }
    )
    stored = (await thing.get()).to_dict()
    assert stored is not None
    assert stored["union"] == [1, "a", "b"]
    assert stored["gone"] == [2, 3]
    assert timedelta(0) <= result.update_time - stored["at"] < timedelta(milliseconds=1)


async def test_batch_write_answers_for_each_write(db: AsyncClient) -> None:
    await db.document("things/0").set({})
    root = "projects/demo/databases/(default)/documents"
    writes = [
        Write(update={"name": f"{root}/things/{n}"}, current_document={"exists": False}) for n in range(2)
    ]
    answer = await db._firestore_api.batch_write({"database": db._database_string, "writes": writes})
    assert [status.code for status in answer.status] == [6, 0]
    assert (await db.document("things/1").get()).exists


async def test_single_document_methods_of_the_wire(db: AsyncClient) -> None:
    api, root = db._firestore_api, f"{db._database_string}/documents"
    made = await api.create_document(
        {"parent": root, "collection_id": "things", "document": {"fields": {"a": {"integer_value": 1}}}}
    )
    made.fields["a"] = {"integer_value": 2}
    await api.update_document({"document": made})
    assert (await api.get_document({"name": made.name})).fields["a"].integer_value == 2
    await api.delete_document({"name": made.name})
    with pytest.raises(exceptions.NotFound):
        await api.get_document({"name": made.name})


async def test_a_past_time_can_be_read(db: AsyncClient) -> None:
    thing = db.document("things/one")
    first = await thing.set({"a": 1})
    await thing.set({"a": 2})
    await db.document("things/two").set({"a": 1})
    await thing.delete()
    past = await thing.get(read_time=first.update_time)
    assert past.to_dict() == {"a": 1}
    query = db.collection("things").where(filter=firestore.FieldFilter("a", "==", 1))
    assert [item.id async for item in query.stream(read_time=first.update_time)] == ["one"]
    assert [item.id async for item in query.stream()] == ["two"]


async def test_listing_shows_missing_parents_and_collections_page_by_page(db: AsyncClient) -> None:
    await db.document("a/1/x/1").set({})
    await db.document("a/1/y/1").set({})
    await db.document("a/2").set({})
    await db.document("b/1").set({})
    assert [item.id async for item in db.collection("a").list_documents(page_size=1)] == ["1", "2"]
    assert [item.id async for item in db.collections()] == ["a", "b"]
    assert [item.id async for item in db.document("a/1").collections()] == ["x", "y"]


async def test_recursive_delete_takes_everything_below_and_nothing_beside(db: AsyncClient) -> None:
    for path in ("a/1", "a/1/x/1", "a/2", "ab/1", "b/1"):
        await db.document(path).set({"v": 1})
    # The asynchronous client blocks its loop here, and with it a server in the same loop.
    with closing(Client(project="demo", credentials=AnonymousCredentials())) as blocking:
        await asyncio.to_thread(blocking.recursive_delete, blocking.collection("a"))
    assert [item.id async for item in db.collections()] == ["ab", "b"]


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("things/__reserved__", {}),
        ("things/..", {}),
        ("things/large", {"text": "x" * 1_048_577}),
        ("things/reserved", {"__field__": 1}),
    ],
)
async def test_what_google_refuses_is_an_invalid_argument(
    db: AsyncClient, path: str, data: dict[str, object]
) -> None:
    with pytest.raises(exceptions.InvalidArgument):
        await db.document(path).set(data)


async def test_a_request_over_ten_mebibytes_is_refused(db: AsyncClient) -> None:
    batch = db.batch()
    for number in range(11):
        batch.set(db.document(f"things/{number}"), {"text": "x" * 1_000_000})
    with pytest.raises(exceptions.InvalidArgument, match="payload size"):
        await batch.commit()


async def test_operations_are_counted_as_they_are_billed(server: RunningFirestore, db: AsyncClient) -> None:
    await db.document("things/one").set({})
    await db.document("things/none").get()
    await db.collection("things").get()
    await db.collection("empty").get()
    await db.collection("things").count().get()
    await db.document("things/one").delete()
    counted = server.counts.snapshot()
    assert counted["rpcs"] == {"BatchGetDocuments": 1, "Commit": 2, "RunAggregationQuery": 1, "RunQuery": 2}
    assert counted["reads"] == {"empty": 1, "things": 3}
    assert counted["writes"] == {"things": 1}
    assert counted["deletes"] == {"things": 1}
    server.counts.reset()
    assert server.counts.snapshot()["rpcs"] == {}
