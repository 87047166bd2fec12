"""Which composite indexes production would need for the queries that ran."""

from __future__ import annotations

import json
import urllib.request
from asyncio import to_thread
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from google.cloud.firestore_v1 import AsyncClient, FieldFilter, Or

from localcloud.firestore import RunningFirestore, missing, read_indexes

Start = Callable[..., Awaitable[RunningFirestore]]
Connect = Callable[[int], AsyncClient]


def where(query: Any, path: str, operator: str, value: object) -> Any:
    return query.where(filter=FieldFilter(path, operator, value))


def fields(server: RunningFirestore) -> list[str]:
    return [
        " ".join(f"{path}{'' if way == 'ASCENDING' else ' ' + way}" for path, way in index.fields)
        for index in server.needed_indexes()
    ]


async def test_what_single_field_indexes_answer_needs_none(server: RunningFirestore, db: AsyncClient) -> None:
    things = db.collection("things")
    await things.get()
    await where(where(things, "a", "==", 1), "b", "==", 2).get()
    await where(things, "a", ">", 1).order_by("a", direction="DESCENDING").get()
    await where(where(things, "a", "==", 1), "tags", "array_contains", "x").get()
    await where(things, "a", "in", [1, 2]).get()
    await where(things, "a", "==", 1).order_by("__name__").get()
    await db.collection_group("things").get()
    assert server.needed_indexes() == []


NEEDED: list[tuple[Callable[[Any], Any], str]] = [
    (lambda things: where(things, "a", "==", 1).order_by("b"), "a b"),
    (lambda things: where(things, "a", "==", 1).order_by("b", direction="DESCENDING"), "a b DESCENDING"),
    (lambda things: where(where(things, "a", "==", 1), "b", "<", 2), "a b"),
    (lambda things: things.order_by("a").order_by("b", direction="DESCENDING"), "a b DESCENDING"),
    (lambda things: where(things, "tags", "array_contains", 1).order_by("a"), "tags CONTAINS a"),
    (lambda things: where(where(things, "a", ">", 1), "b", ">", 1), "a b"),
    (lambda things: where(things, "a", "in", [1, 2]).order_by("b"), "a b"),
]


@pytest.mark.parametrize(("query", "index"), NEEDED, ids=[index for _, index in NEEDED])
async def test_a_query_needs_an_index(
    server: RunningFirestore, db: AsyncClient, query: Callable[[Any], Any], index: str
) -> None:
    await query(db.collection("things")).get()
    assert fields(server) == [index]


async def test_each_branch_of_an_or_needs_its_own(server: RunningFirestore, db: AsyncClient) -> None:
    either = Or([FieldFilter("a", "==", 1), FieldFilter("b", "==", 1)])
    await db.collection("things").where(filter=either).order_by("c").get()
    assert fields(server) == ["a c", "b c"]


async def test_a_sum_beside_a_filter_needs_one_and_a_group_needs_any(
    server: RunningFirestore, db: AsyncClient
) -> None:
    await where(db.collection("things"), "a", "==", 1).sum("n").get()
    await where(db.collection_group("things"), "a", "==", 1).get()
    declared = [index.as_declared() for index in server.needed_indexes()]
    assert [(index["queryScope"], len(index["fields"])) for index in declared] == [  # type: ignore[arg-type]
        ("COLLECTION", 2),
        ("COLLECTION_GROUP", 1),
    ]


async def test_declared_indexes_answer_what_they_can(server: RunningFirestore, db: AsyncClient) -> None:
    things = db.collection("things")
    await where(where(things, "a", "==", 1), "b", "==", 1).order_by("n", direction="DESCENDING").get()

    def declared(*paths: str) -> dict[str, object]:
        ordered = [
            {"fieldPath": path.strip("-"), "order": "DESCENDING" if "-" in path else "ASCENDING"}
            for path in paths
        ]
        return {"collectionGroup": "things", "queryScope": "COLLECTION", "fields": ordered}

    needed = server.needed_indexes()
    assert missing(needed, [declared("a", "b", "n-")]) == []
    assert missing(needed, [declared("b-", "a", "n")]) == [], (
        "order of equalities and direction as a whole are free"
    )
    assert missing(needed, [declared("a", "n-"), declared("b", "n-")]) == [], "two are joined"
    assert missing(needed, [declared("a", "n-")]) == needed
    assert missing(needed, [declared("n-", "a", "b")]) == needed
    assert missing(needed, []) == needed


async def test_what_is_needed_is_told_over_http_and_noted_beside_the_data(
    start: Start, connect: Connect, tmp_path: Path
) -> None:
    server = await start(data=tmp_path)
    await where(connect(server.port).collection("things"), "a", "==", 1).order_by("b").get()
    assert read_indexes(tmp_path) == server.needed_indexes()

    def ask() -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/emulator/v1/indexes") as answer:
            return json.load(answer)

    assert await to_thread(ask) == {"indexes": [index.as_declared() for index in server.needed_indexes()]}
    assert read_indexes(tmp_path / "nowhere") == []
