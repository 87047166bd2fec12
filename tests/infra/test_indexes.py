"""Every query of the code has its index in infra/terraform/indexes.json, and every index there has its query.

The code's own query functions run against a Firestore that finds nothing and remembers what it was asked. Which index a
query needs follows Firestore's rules: its equality fields, then its order; one field is a single-field index.
"""

from __future__ import annotations

import ast
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import grpc
import pytest
from google.cloud.firestore import AsyncClient
from google.cloud.firestore_v1.types import (
    RunAggregationQueryRequest,
    RunAggregationQueryResponse,
    RunQueryRequest,
    RunQueryResponse,
    StructuredQuery,
)

from shared.adapters import firestore_keys, firestore_tasks
from shared.adapters.firestore import Documents
from tests.infra.conftest import MODULE, ROOT, read_json

NOW = datetime(2030, 1, 1, tzinfo=UTC)
INDEXES = read_json(MODULE / "indexes.json")

Ask = Callable[[Documents], Awaitable[Any]]

QUERIES: dict[str, list[Ask]] = {
    "tally": [lambda d: firestore_tasks.tally(d, "task_1")],
    "tasks_of_user": [
        lambda d: firestore_tasks.tasks_of_user(d, "user", size=20, after=None),
        lambda d: firestore_tasks.tasks_of_user(d, "user", size=20, after=NOW),
    ],
    "events_of": [
        lambda d: firestore_tasks.events_of(d, "task_1"),
        lambda d: firestore_tasks.events_of(d, "task_1", since=NOW),
    ],
    "failed_shots": [lambda d: firestore_tasks.failed_shots(d, most=10)],
    "undelivered_events": [lambda d: firestore_tasks.undelivered_events(d, "notification", most=10)],
    "overdue": [
        lambda d: firestore_tasks.overdue(d, "shots", "enqueueAt", before=NOW, most=10),
        lambda d: firestore_tasks.overdue(d, "events", "publishBy", before=NOW, most=10),
        lambda d: firestore_tasks.overdue(d, "tasks", "checkAt", before=NOW, most=10),
    ],
    "slots_with_dead_holders": [
        lambda d: firestore_keys.slots_with_dead_holders(d, before=NOW, most=10),
    ],
}
"""Each function that makes a query, called in every way it is called."""


@dataclass
class Listener:
    """Hears the queries; `documents` asks them."""

    documents: Documents
    heard: list[StructuredQuery] = field(default_factory=list)


@pytest.fixture
async def listener(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Listener]:
    heard: list[StructuredQuery] = []

    async def run_query(request: Any, context: Any) -> AsyncIterator[Any]:
        heard.append(RunQueryRequest.wrap(request).structured_query)
        yield RunQueryResponse.pb(RunQueryResponse(read_time=NOW))

    async def run_aggregation(request: Any, context: Any) -> AsyncIterator[Any]:
        asked = RunAggregationQueryRequest.wrap(request).structured_aggregation_query
        aggregated = {one.sum.field.field_path for one in asked.aggregations if "sum" in one}
        # A sum walks the index of the filter if that has the field; another field would ask for a composite one.
        assert aggregated <= {part.path for part in index_of(asked.structured_query).parts}
        heard.append(asked.structured_query)
        result = {"aggregate_fields": {one.alias: {"integer_value": 0} for one in asked.aggregations}}
        yield RunAggregationQueryResponse.pb(RunAggregationQueryResponse(result=result, read_time=NOW))

    handlers = {
        "RunQuery": grpc.unary_stream_rpc_method_handler(
            run_query, RunQueryRequest.pb().FromString, RunQueryResponse.pb().SerializeToString
        ),
        "RunAggregationQuery": grpc.unary_stream_rpc_method_handler(
            run_aggregation,
            RunAggregationQueryRequest.pb().FromString,
            RunAggregationQueryResponse.pb().SerializeToString,
        ),
    }
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("google.firestore.v1.Firestore", handlers),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", f"127.0.0.1:{port}")
    client = AsyncClient(project="demo")
    yield Listener(Documents(client, rng=random.Random(1)), heard)
    await client._firestore_api.transport.close()
    await server.stop(None)


@dataclass(frozen=True)
class Part:
    path: str
    mode: str


@dataclass(frozen=True)
class Index:
    collection: str
    scope: str
    parts: tuple[Part, ...]


def index_of(query: StructuredQuery) -> Index:
    (source,) = query.from_
    where = query.where
    filters = [part.field_filter for part in where.composite_filter.filters] or [where.field_filter]
    operators = StructuredQuery.FieldFilter.Operator
    parts: dict[str, str] = {}
    for one in filters:
        if one.op == operators.EQUAL:
            parts[one.field.field_path] = "ASCENDING"
        elif one.op == operators.ARRAY_CONTAINS:
            parts[one.field.field_path] = "CONTAINS"
    ranges = [one.field.field_path for one in filters if one.field.field_path not in parts]
    for order in query.order_by:
        if order.field.field_path != "__name__":
            parts.setdefault(order.field.field_path, StructuredQuery.Direction(order.direction).name)
    for path in ranges:
        parts.setdefault(path, "ASCENDING")
    return Index(
        collection=source.collection_id,
        scope="COLLECTION_GROUP" if source.all_descendants else "COLLECTION",
        parts=tuple(Part(path, mode) for path, mode in parts.items()),
    )


def declared() -> set[Index]:
    composite = {
        Index(i["collection"], i["scope"], tuple(Part(part["path"], part["order"]) for part in i["fields"]))
        for i in INDEXES["composite"]
    }
    return composite | {
        Index(i["collection"], i["scope"], (Part(i["path"], i["mode"]),)) for i in INDEXES["single"]
    }


async def test_the_declared_indexes_are_those_that_the_queries_need(listener: Listener) -> None:
    for asks in QUERIES.values():
        for ask in asks:
            await ask(listener.documents)
    needed = {index_of(query) for query in listener.heard}
    assert needed - declared() == set(), "declare these in infra/terraform/indexes.json"
    assert declared() - needed == set(), (
        "nobody asks for these: take them out of infra/terraform/indexes.json"
    )


def test_no_query_of_the_code_is_left_out() -> None:
    makers = set()
    for file in (*(ROOT / "shared").rglob("*.py"), *(ROOT / "functions").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if any(
                isinstance(inner, ast.Attribute) and inner.attr in ("where", "order_by")
                for inner in ast.walk(node)
            ):
                makers.add(node.name)
    assert makers == set(QUERIES), (
        "tests/infra/test_indexes.py: QUERIES has every function that makes a query"
    )


def test_every_collection_of_the_code_starts_without_indexes() -> None:
    """`shots` is a collection group; the others are at the top."""
    assert {i["collection"] for i in (*INDEXES["composite"], *INDEXES["single"])} <= set(
        INDEXES["collections"]
    )
    assert set(INDEXES["ttl"]) <= set(INDEXES["collections"])
