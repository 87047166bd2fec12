"""What Firestore refuses, with the status and the words it refuses it with."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud.firestore_v1 import AsyncClient, DocumentReference, Or
from google.cloud.firestore_v1 import FieldFilter as Where
from google.cloud.firestore_v1.types import StructuredQuery

ONLY_ONE = "Only a single 'NOT_EQUAL', 'NOT_IN', 'IS_NOT_NAN', or 'IS_NOT_NULL' filter allowed per query."


async def run(db: AsyncClient, **query: Any) -> list[str]:
    """Asks with a query of the wire: the client refuses some of these itself."""
    asked = {"from_": [{"collection_id": "things"}], **query}
    request = {"parent": f"{db._database_string}/documents", "structured_query": StructuredQuery(asked)}
    answers = [answer async for answer in await db._firestore_api.run_query(request)]
    return [answer.document.name for answer in answers if answer.document.name]


def where(path: str, op: str, value: Any) -> dict[str, Any]:
    return {"field_filter": {"field": {"field_path": path}, "op": op, "value": value}}


def both(*filters: Any, op: str = "AND") -> dict[str, Any]:
    return {"composite_filter": {"op": op, "filters": list(filters)}}


def numbers(count: int) -> dict[str, Any]:
    return {"array_value": {"values": [{"integer_value": number} for number in range(count)]}}


ONE = {"integer_value": 1}
REFUSED = [
    ({"where": both(where("a", "NOT_EQUAL", ONE), where("b", "NOT_EQUAL", ONE))}, ONLY_ONE),
    (
        {"where": both(where("a", "NOT_IN", numbers(2)), where("b", "IN", numbers(2)))},
        "'NOT_IN' cannot be used in the same query with 'IN', 'ARRAY_CONTAINS_ANY' or 'OR'.",
    ),
    ({"where": where("a", "NOT_IN", numbers(11))}, "'NOT_IN' supports up to 10 comparison values."),
    ({"where": where("a", "IN", numbers(31))}, "'IN' supports up to 30 comparison values."),
    ({"where": where("a", "IN", numbers(0))}, "'IN' requires an non-empty ArrayValue."),
    (
        {"where": both(where("a", "ARRAY_CONTAINS", ONE), where("b", "ARRAY_CONTAINS_ANY", numbers(2)))},
        "A maximum of 1 'ARRAY_CONTAINS' filter is allowed per disjunction.",
    ),
    ({"where": both(op="OR")}, "Composite filter must have at least one sub-filter."),
    ({"where": where("__name__", "EQUAL", ONE)}, "__key__ filter value must be a Key"),
    ({"where": where("__name__", "ARRAY_CONTAINS", ONE)}, "the name __key__ is reserved"),
    (
        {"order_by": [{"field": {"field_path": "a"}}, {"field": {"field_path": "a"}}]},
        "order by clause cannot contain duplicate fields a",
    ),
    (
        {"order_by": [{"field": {"field_path": "__name__"}}, {"field": {"field_path": "a"}}]},
        "order by clause cannot contain more fields after the key a",
    ),
    ({"start_at": {"values": [ONE]}}, "Cursor has too many values."),
    (
        {"order_by": [{"field": {"field_path": "__name__"}}], "end_at": {"values": [ONE]}},
        "Cursor __key__ value is not a document reference.",
    ),
    ({"limit": -1}, "limit is negative"),
    ({"offset": -1}, "offset is negative"),
    (
        {"from_": [{"all_descendants": True}], "where": where("a", "EQUAL", ONE)},
        "kind is required for filter: a",
    ),
    (
        {"where": both(*(where(f"f{number}", "GREATER_THAN", ONE) for number in range(11)))},
        "The query contains 11 distinct inequality fields: ",
    ),
    # Thirty to the tenth conjunctions: refused without being written out.
    ({"where": both(*(where(f"f{number}", "IN", numbers(30)) for number in range(10)))}, "disjunctions"),
]


@pytest.mark.parametrize(("query", "words"), REFUSED, ids=[words[:40] for _, words in REFUSED])
async def test_a_query_is_refused(db: AsyncClient, query: dict[str, Any], words: str) -> None:
    with pytest.raises(exceptions.InvalidArgument) as refused:
        await run(db, **query)
    assert words in refused.value.message


async def test_a_group_below_a_document_is_known_by_names_only(db: AsyncClient) -> None:
    await db.document("parents/a/things/one").set({"n": 1})
    group = {"from_": [{"collection_id": "things", "all_descendants": True}]}
    request = {
        "parent": f"{db._database_string}/documents/parents/a",
        "structured_query": StructuredQuery(group),
    }
    found = [answer.document.name async for answer in await db._firestore_api.run_query(request)]
    assert [name.rpartition("/")[2] for name in found] == ["one"]
    filtered = StructuredQuery({**group, "where": where("n", "EQUAL", ONE)})
    with pytest.raises(exceptions.InvalidArgument, match="only allowed at the root parent"):
        async for _ in await db._firestore_api.run_query({**request, "structured_query": filtered}):
            pass


async def test_null_and_nan_are_members_of_nothing(db: AsyncClient) -> None:
    things = db.collection("things")
    await things.document("null").set({"n": None, "a": [None]})
    await things.document("nan").set({"n": float("nan"), "a": [float("nan")]})
    await things.document("one").set({"n": 1, "a": [1]})

    async def found(*conditions: Any) -> list[str]:
        return [item.id for item in await things.where(filter=Or(list(conditions))).get()]

    odd = [None, float("nan"), 1]
    assert await found(Where("n", "in", odd)) == ["one"]
    assert await found(Where("a", "array_contains_any", odd)) == ["one"]
    assert await found(Where("n", "not-in", [None])) == []
    assert await found(Where("n", "not-in", [float("nan")])) == ["one"]
    assert await found(Where("n", "==", None)) == ["null"]


async def test_nan_is_neither_above_nor_below_a_number(db: AsyncClient) -> None:
    things = db.collection("things")
    await things.document("nan").set({"n": float("nan")})
    await things.document("low").set({"n": float("-inf")})
    await things.document("one").set({"n": 1})
    for operator, value, expected in (
        ("<=", 1, ["low", "one"]),
        ("<", 1, ["low"]),
        (">=", float("-inf"), ["low", "one"]),
    ):
        query = things.where(filter=Where("n", operator, value))
        assert [item.id for item in await query.get()] == expected, (operator, value)
        assert (await query.count().get())[0][0].value == len(expected), (operator, value)
    assert [item.id for item in await things.order_by("n").get()] == ["nan", "low", "one"]
    for spoken in ("LESS_THAN_OR_EQUAL", "GREATER_THAN_OR_EQUAL"):
        assert await run(db, where=where("n", spoken, {"double_value": float("nan")})) == []


@pytest.mark.parametrize("name", [".", "..", "__reserved__", "a" * 1501], ids=lambda name: name[:12])
async def test_an_id_is_refused(db: AsyncClient, name: str) -> None:
    with pytest.raises(exceptions.InvalidArgument):
        await db.collection("things").document(name).get()


@pytest.mark.parametrize("name", ["__half", "____", "a" * 1500, "`back`", "画像"], ids=lambda name: name[:12])
async def test_an_id_is_taken(db: AsyncClient, name: str) -> None:
    reference: DocumentReference = db.collection("things").document(name)
    await reference.create({"name": name})
    assert (await reference.get()).get("name") == name


async def test_a_precondition_on_the_future_is_invalid(db: AsyncClient) -> None:
    written = await db.document("things/one").set({"n": 1})
    later = db.write_option(last_update_time=written.update_time + timedelta(hours=1))
    with pytest.raises(exceptions.InvalidArgument):
        await db.document("things/one").delete(option=later)
    earlier = db.write_option(last_update_time=written.update_time - timedelta(seconds=1))
    with pytest.raises(exceptions.FailedPrecondition):
        await db.document("things/one").delete(option=earlier)


async def test_aggregations_are_refused(db: AsyncClient) -> None:
    things = db.collection("things")
    with pytest.raises(exceptions.InvalidArgument, match="Aggregation aliases contain duplicate alias"):
        await things.count(alias="x").count(alias="x").get()
    query = things.count()
    for _ in range(5):
        query = query.count()
    with pytest.raises(exceptions.InvalidArgument, match="maximum number of aggregations"):
        await query.get()
