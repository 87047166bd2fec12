"""Queries through Google's client: filters, order, cursors, groups and aggregations."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud import firestore_v1 as firestore
from google.cloud.firestore_v1 import AsyncClient, FieldFilter
from google.cloud.firestore_v1.base_query import And, Or
from google.cloud.firestore_v1.vector import Vector


async def ids(query: Any) -> list[str]:
    return [item.id async for item in query.stream()]


async def fill(db: AsyncClient, collection: str, values: dict[str, dict[str, Any]]) -> None:
    batch = db.batch()
    for name, value in values.items():
        batch.set(db.collection(collection).document(name), value)
    await batch.commit()


SHOTS: dict[str, dict[str, Any]] = {
    "a": {"n": 1, "kind": "x", "tags": ["red", "blue"]},
    "b": {"n": 2, "kind": "y", "tags": ["red"]},
    "c": {"n": 3, "kind": "x", "tags": []},
    "d": {"n": 4.5, "kind": None, "tags": ["blue", "blue"]},
    "e": {"n": "text", "kind": math.nan},
    "f": {"kind": "z"},
}


@pytest.mark.parametrize(
    ("field", "operator", "value", "expected"),
    [
        ("n", "==", 2.0, ["b"]),  # numbers compare across types
        ("n", "<", 3, ["a", "b"]),
        ("n", ">=", 2, ["b", "c", "d"]),  # strings are another type
        ("n", "!=", 2, ["a", "c", "d", "e"]),  # the field must exist; other types differ
        ("kind", "==", None, ["d"]),
        ("kind", "==", math.nan, ["e"]),
        ("kind", "!=", None, ["e", "a", "c", "b", "f"]),
        ("kind", "!=", math.nan, ["a", "c", "b", "f"]),  # null is never unequal
        ("kind", "in", ["x", "z"], ["a", "c", "f"]),
        ("kind", "not-in", ["x"], ["e", "b", "f"]),
        ("tags", "array_contains", "blue", ["a", "d"]),
        ("tags", "array_contains_any", ["red", "blue"], ["a", "b", "d"]),
    ],
)
async def test_each_operator(
    db: AsyncClient, field: str, operator: str, value: Any, expected: list[str]
) -> None:
    await fill(db, "shots", SHOTS)
    query = db.collection("shots").where(filter=FieldFilter(field, operator, value))
    assert await ids(query) == expected
    assert (await query.count().get())[0][0].value == len(expected)


async def test_and_or_trees(db: AsyncClient) -> None:
    await fill(db, "shots", SHOTS)
    tree = Or(
        [
            And([FieldFilter("kind", "==", "x"), FieldFilter("n", ">", 1)]),
            FieldFilter("n", "in", [1, 2]),
        ]
    )
    assert await ids(db.collection("shots").where(filter=tree)) == ["a", "b", "c"]
    last_two = db.collection("shots").where(filter=tree).order_by("n", direction="DESCENDING").limit(2)
    assert await ids(last_two) == ["c", "b"]


async def test_values_of_all_types_sort_in_firestores_order(db: AsyncClient) -> None:
    ascending = [
        None,
        False,
        True,
        math.nan,
        -math.inf,
        -(2**63),
        -1.5,
        0,
        2**53,
        2**53 + 1,
        float(2**53 + 2),
        2**63 - 1,
        float(2**63),
        math.inf,
        datetime(1960, 1, 1, tzinfo=UTC),
        datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
        "",
        "a",
        "a\x00",
        "aa",
        "\uffee",
        "\U0001f457",  # after it in UTF-8, before it in UTF-16
        b"",
        b"\x00",
        b"\x00\x01",
        db.document("a/b"),
        db.document("a/b/c/d"),
        db.document("a/c"),
        firestore.GeoPoint(-1, 5),
        firestore.GeoPoint(0, 0),
        [],
        [1],
        [1, 2],
        [2],
        Vector([9.0]),
        Vector([1.0, 2.0]),
        {},
        {"a": 1},
        {"a": 1, "b": 0},
        {"a": 2},
        {"b": 0},
    ]
    names = [f"{number:02}" for number in range(len(ascending))]
    shuffled = list(zip(names, ascending, strict=True))
    random.Random(7).shuffle(shuffled)
    await fill(db, "things", {name: {"v": value} for name, value in shuffled})
    assert await ids(db.collection("things").order_by("v")) == names
    assert await ids(db.collection("things").order_by("v", direction="DESCENDING")) == names[::-1]


async def test_zero_has_no_sign_and_equal_values_are_ordered_by_name(db: AsyncClient) -> None:
    await fill(db, "things", {"b": {"v": 0.0}, "a": {"v": -0.0}, "c": {"v": 0}})
    assert await ids(db.collection("things").order_by("v")) == ["a", "b", "c"]
    assert await ids(db.collection("things").where(filter=FieldFilter("v", "==", 0))) == ["a", "b", "c"]


async def test_cursors_on_values_and_documents(db: AsyncClient) -> None:
    await fill(db, "things", {f"{n}": {"v": n // 2, "all": 1} for n in range(8)})
    for base in (db.collection("things"), db.collection("things").where(filter=FieldFilter("all", "==", 1))):
        ordered = base.order_by("v")
        assert await ids(ordered.start_at({"v": 1}).end_before({"v": 3})) == ["2", "3", "4", "5"]
        assert await ids(ordered.start_after({"v": 1}).end_at({"v": 2})) == ["4", "5"]
        middle = await db.document("things/4").get()
        assert await ids(ordered.start_after(middle)) == ["5", "6", "7"]
        assert await ids(ordered.end_at(middle)) == ["0", "1", "2", "3", "4"]
        down = base.order_by("v", direction="DESCENDING")
        assert await ids(down.start_after(middle).limit(3)) == ["3", "2", "1"]
        assert await ids(down.start_at({"v": 2}).end_before({"v": 0})) == ["5", "4", "3", "2"]
        assert await ids(ordered.offset(6)) == ["6", "7"]
        # The client turns the directions of the query round in place, so this comes last.
        assert [item.id for item in await ordered.limit_to_last(2).get()] == ["6", "7"]
        mixed = base.order_by("v", direction="DESCENDING").order_by("__name__")
        assert await ids(mixed.start_after(middle)) == ["5", "2", "3", "0", "1"]


async def test_names_filter_order_and_bound_documents(db: AsyncClient) -> None:
    things = db.collection("things")
    await fill(db, "things", {name: {"v": 1} for name in "abcd"})
    await db.document("things/a/below/x").set({"v": 1})
    assert await ids(things.where(filter=FieldFilter("__name__", ">", things.document("b")))) == ["c", "d"]
    wanted = [things.document("d"), things.document("a")]
    assert await ids(things.where(filter=FieldFilter("__name__", "in", wanted))) == ["a", "d"]
    down = things.order_by("__name__", direction="DESCENDING")
    assert await ids(down) == ["d", "c", "b", "a"]
    assert await ids(down.start_after([things.document("c")])) == ["b", "a"]


async def test_a_projection_returns_only_its_fields(db: AsyncClient) -> None:
    await db.document("things/a").set({"x": {"y": 1, "z": 2}, "w": 3})
    [found] = await db.collection("things").select(["x.y"]).get()
    assert found.to_dict() == {"x": {"y": 1}}
    [bare] = await db.collection("things").select([]).get()
    assert bare.to_dict() == {}


async def test_a_collection_group_spans_parents_and_a_collection_does_not(db: AsyncClient) -> None:
    for path in ("tasks/1/shots/a", "tasks/2/shots/b", "shots/c", "tasks/1/others/d"):
        await db.document(path).set({"n": 1})
    n_is_1 = FieldFilter("n", "==", 1)
    assert sorted(await ids(db.collection_group("shots").where(filter=n_is_1))) == ["a", "b", "c"]
    assert await ids(db.collection("tasks/1/shots").where(filter=n_is_1)) == ["a"]
    assert sorted(await ids(db.collection_group("shots"))) == ["a", "b", "c"]


async def test_indexes_follow_later_writes(db: AsyncClient) -> None:
    open_events = db.collection("events").where(filter=FieldFilter("publishedAt", "==", None))
    assert await ids(open_events) == []
    await fill(db, "events", {"a": {"publishedAt": None}, "b": {"publishedAt": None}, "c": {}})
    assert await ids(open_events) == ["a", "b"]
    await db.document("events/a").update({"publishedAt": datetime(2026, 1, 1, tzinfo=UTC)})
    assert await ids(open_events) == ["b"]
    await db.document("events/b").delete()
    assert await ids(open_events) == []


async def test_several_aggregations_in_one_query(db: AsyncClient) -> None:
    await fill(db, "shots", SHOTS)
    number = db.collection("shots").where(filter=FieldFilter("n", ">=", 0))
    query = number.count(alias="all").sum("n", alias="sum").avg("n", alias="avg")
    got = {item.alias: item.value for item in (await query.get())[0]}
    assert got == {"all": 4, "sum": 10.5, "avg": 2.625}
    # The client shows the null that is the average of nothing as 0.0.
    nothing = db.collection("none").count(alias="all").sum("n", alias="sum").avg("n", alias="avg")
    assert {item.alias: item.value for item in (await nothing.get())[0]} == {"all": 0, "sum": 0, "avg": 0.0}
    assert (await db.collection("shots").limit(2).count().get())[0][0].value == 2


@pytest.mark.parametrize(
    ("numbers", "total"),
    [
        ([1.7e308, 1.7e308], math.inf),
        ([-1.7e308, -1.7e308], -math.inf),
        ([1.7e308, 1, math.nan], math.nan),
    ],
)
async def test_a_sum_beyond_all_numbers_is_infinite(
    db: AsyncClient, numbers: list[float], total: float
) -> None:
    await fill(db, "things", {str(place): {"n": number} for place, number in enumerate(numbers)})
    query = db.collection("things").sum("n", alias="sum").avg("n", alias="avg")
    got = {item.alias: item.value for item in (await query.get())[0]}
    assert got == pytest.approx({"sum": total, "avg": total}, nan_ok=True)


async def test_an_aggregation_starts_at_the_document_its_cursor_names(db: AsyncClient) -> None:
    await fill(
        db,
        "things",
        {"a": {"n": 5, "m": 1}, "b": {"n": 3, "m": 1}, "c": {"m": 1}, "d": {"n": 1, "m": 1}},
    )
    things = db.collection("things")
    after: Any = {"__name__": things.document("a")}
    assert (await things.order_by("__name__").start_after(after).sum("n").get())[0][0].value == 4
    first = await things.document("a").get()
    assert (await things.order_by("m").start_after(first).sum("n").get())[0][0].value == 4
    assert (await things.order_by("__name__").end_at(after).sum("n").get())[0][0].value == 5


@pytest.mark.parametrize("seed", range(4))
async def test_random_queries_answer_as_a_plain_loop_does(db: AsyncClient, seed: int) -> None:
    chance = random.Random(seed)
    things = {
        f"{n:02}": {name: chance.randrange(4) for name in "abc" if chance.random() < 0.9} for n in range(40)
    }
    await fill(db, "things", things)
    compare = {
        "==": lambda x, y: x == y,
        "<": lambda x, y: x < y,
        ">=": lambda x, y: x >= y,
        "!=": lambda x, y: x != y,
        "in": lambda x, y: x in y,
    }
    for _ in range(25):
        query: Any = db.collection("things")
        tests = []
        for field in chance.sample("abc", chance.randrange(3)):
            operator = chance.choice(list(compare))
            value: Any = chance.sample(range(4), 2) if operator == "in" else chance.randrange(4)
            query = query.where(filter=FieldFilter(field, operator, value))
            tests.append((field, operator, value))
        order = chance.sample("abc", chance.randrange(3))
        down = [chance.random() < 0.5 for _ in order]
        for field, is_down in zip(order, down, strict=True):
            query = query.order_by(field, direction="DESCENDING" if is_down else "ASCENDING")
        unequal = sorted({field for field, op, _ in tests if op in {"<", ">=", "!="}} - set(order))
        fields = [*order, *unequal]
        down += [bool(down) and down[-1]] * (len(unequal) + 1)
        expected = [
            name
            for name, thing in things.items()
            if all(field in thing for field in fields)
            and all(field in thing and compare[op](thing[field], value) for field, op, value in tests)
        ]
        expected.sort(reverse=down[-1])
        for at in reversed(range(len(fields))):
            expected.sort(key=lambda name, at=at: things[name][fields[at]], reverse=down[at])
        skip, limit = chance.randrange(3), chance.randrange(1, 12)
        assert await ids(query) == expected, (tests, order, down)
        assert await ids(query.offset(skip).limit(limit)) == expected[skip : skip + limit]
        assert (await query.count().get())[0][0].value == len(expected)


async def test_not_in_may_be_one_side_of_an_or(db: AsyncClient) -> None:
    await fill(db, "things", {"a": {"n": 1, "m": 5}, "b": {"n": 2, "m": 4}, "c": {"n": 2}, "d": {"m": 3}})
    either = Or([FieldFilter("n", "==", 2), FieldFilter("m", "not-in", [3, 4])])
    assert await ids(db.collection("things").where(filter=either)) == ["b", "a"]


async def test_too_many_disjunctions_are_refused(db: AsyncClient) -> None:
    query = db.collection("things")
    for field in "ab":
        query = query.where(filter=FieldFilter(field, "in", list(range(6))))
    with pytest.raises(exceptions.InvalidArgument, match="disjunctions"):
        await query.get()
