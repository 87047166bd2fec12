"""Vector searches through Google's client: ranking, distances, thresholds, and what they need or may not have."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud.firestore_v1 import AsyncClient, ExplainOptions, FieldFilter
from google.cloud.firestore_v1.base_vector_query import DistanceMeasure
from google.cloud.firestore_v1.types import ListenRequest, StructuredQuery, Target
from google.cloud.firestore_v1.vector import Vector

from localcloud.firestore import RunningFirestore, missing, read_indexes
from tests.localcloud.firestore.test_indexes import Connect, Start

EUCLIDEAN, COSINE, DOT = DistanceMeasure.EUCLIDEAN, DistanceMeasure.COSINE, DistanceMeasure.DOT_PRODUCT
THINGS: dict[str, dict[str, Any]] = {
    "none": {"kind": "x"},
    "near": {"kind": "x", "v": Vector([2.0, 0.0])},
    "far": {"kind": "x", "v": Vector([30.0, 40.0])},
    "back": {"kind": "x", "v": Vector([-3.0, 0.0])},
    "other": {"kind": "y", "v": Vector([1.0, 0.0])},
    "long": {"kind": "x", "v": Vector([1.0, 0.0, 0.0])},
    "list": {"kind": "x", "v": [1.0, 0.0]},
    "null": {"kind": "x", "v": None},
    "nowhere": {"kind": "x", "v": Vector([math.nan, 0.0])},
}


async def fill(db: AsyncClient) -> Any:
    for name, thing in THINGS.items():
        await db.document(f"things/{name}").set(thing)
    return db.collection("things").where(filter=FieldFilter("kind", "==", "x"))


@pytest.mark.parametrize(
    ("measure", "expected"),
    [
        (EUCLIDEAN, {"near": 1.0, "back": 4.0, "far": math.hypot(29, 40)}),
        (COSINE, {"near": 0.0, "far": 0.4, "back": 2.0}),
        (DOT, {"far": 30.0, "near": 2.0, "back": -3.0}),
    ],
)
async def test_the_nearest_come_first_and_tell_their_distance(
    db: AsyncClient, measure: DistanceMeasure, expected: dict[str, float]
) -> None:
    things = await fill(db)
    query = things.find_nearest("v", Vector([1.0, 0.0]), 10, measure, distance_result_field="kind")
    found = await query.get()
    assert {item.id: item.get("kind") for item in found} == pytest.approx(expected)
    assert [item.id for item in found] == list(expected)
    assert (await db.document("things/near").get()).get("kind") == "x", "what is stored stays as it is"


@pytest.mark.parametrize(
    ("measure", "threshold", "expected"),
    [(EUCLIDEAN, 4.0, ["near", "back"]), (COSINE, 0.5, ["near", "far"]), (DOT, 2.0, ["far", "near"])],
)
async def test_a_threshold_keeps_what_is_less_alike_out(
    db: AsyncClient, measure: DistanceMeasure, threshold: float, expected: list[str]
) -> None:
    things = await fill(db)

    async def found(limit: int) -> list[str]:
        query = things.find_nearest("v", Vector([1.0, 0.0]), limit, measure, distance_threshold=threshold)
        return [item.id for item in await query.get()]

    assert await found(10) == expected
    assert await found(1) == expected[:1]


async def test_a_selection_is_made_after_the_search(db: AsyncClient) -> None:
    things = await fill(db)
    chosen = things.select(["kind"]).find_nearest("v", Vector([1.0, 0.0]), 1, EUCLIDEAN)
    assert [item.to_dict() for item in await chosen.get()] == [{"kind": "x"}]
    told = things.select(["far"]).find_nearest(
        "v", Vector([1.0, 0.0]), 1, EUCLIDEAN, distance_result_field="far"
    )
    assert [item.to_dict() for item in await told.get()] == [{"far": 1.0}]


async def test_a_vector_of_no_length_has_no_cosine(db: AsyncClient) -> None:
    await db.document("things/zero").set({"v": Vector([0.0])})
    things = db.collection("things")
    assert list(await things.find_nearest("v", Vector([1.0]), 1, COSINE).get()) == []
    assert [item.id for item in await things.find_nearest("v", Vector([1.0]), 1, DOT).get()] == ["zero"]


async def test_a_vector_search_is_explained(db: AsyncClient) -> None:
    query = (await fill(db)).find_nearest("v", Vector([1.0, 0.0]), 2, EUCLIDEAN)
    found = await query.get(explain_options=ExplainOptions(analyze=True))
    metrics = found.get_explain_metrics()
    assert metrics.plan_summary.indexes_used == [
        {"query_scope": "Collection", "properties": "(kind ASC, __name__ ASC, v VECTOR<2>)"}
    ]
    assert (len(found), metrics.execution_stats.results_returned) == (2, 2)


async def test_a_vector_search_needs_an_index_of_its_dimensions(
    start: Start, connect: Connect, tmp_path: Path
) -> None:
    server: RunningFirestore = await start(data=tmp_path)
    things = connect(server.port).collection("things")
    await things.find_nearest("v", Vector([1.0, 0.0]), 2, EUCLIDEAN).get()
    needed = server.needed_indexes()
    declared = needed[0].as_declared()
    assert declared["fields"] == [{"fieldPath": "v", "vectorConfig": {"dimension": 2, "flat": {}}}]
    assert read_indexes(tmp_path) == needed
    assert missing(needed, [declared]) == []
    wider = {**declared, "fields": [{"fieldPath": "v", "vectorConfig": {"dimension": 3, "flat": {}}}]}
    assert missing(needed, [wider]) == needed


def vector(length: int) -> dict[str, Any]:
    elements = {"array_value": {"values": [{"double_value": 1.0}] * length}}
    return {"map_value": {"fields": {"__type__": {"string_value": "__vector__"}, "value": elements}}}


GOOD: dict[str, Any] = {
    "vector_field": {"field_path": "v"},
    "query_vector": vector(1),
    "distance_measure": "EUCLIDEAN",
    "limit": 1,
}


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"query_vector": {"array_value": {}}}, "query_vector that is a vector"),
        ({"query_vector": vector(0)}, "1 to 2048 dimensions: 0"),
        ({"query_vector": vector(2049)}, "1 to 2048 dimensions: 2049"),
        ({"distance_measure": 0}, "needs a distance_measure"),
        ({"limit": 0}, "no more than 1000"),
        ({"limit": 1001}, "no more than 1000"),
    ],
)
async def test_a_vector_search_is_refused(db: AsyncClient, changed: dict[str, Any], reason: str) -> None:
    query = StructuredQuery(from_=[{"collection_id": "things"}], find_nearest={**GOOD, **changed})
    request = {"parent": f"{db._database_string}/documents", "structured_query": query}
    with pytest.raises(exceptions.InvalidArgument, match=reason):
        async for _ in await db._firestore_api.run_query(request):
            pass


async def test_neither_partitions_nor_listeners_take_a_vector_search(db: AsyncClient) -> None:
    root = f"{db._database_string}/documents"
    query = StructuredQuery(from_=[{"collection_id": "things", "all_descendants": True}], find_nearest=GOOD)
    with pytest.raises(exceptions.InvalidArgument, match="find_nearest"):
        await db._firestore_api.partition_query(
            {"parent": root, "structured_query": query, "partition_count": 2}
        )
    target = Target(target_id=1, query={"parent": root, "structured_query": query})

    async def requests() -> AsyncIterator[ListenRequest]:
        yield ListenRequest(database=db._database_string, add_target=target)

    answers = aiter(await db._firestore_api.listen(requests()))
    assert "find_nearest" in (await anext(answers)).target_change.cause.message
