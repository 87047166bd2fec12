"""What count, sum and avg come to over the documents of a query."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

from localcloud.firestore.errors import InvalidArgument
from localcloud.firestore.paths import NAME, FieldPath, parse_field_path
from localcloud.firestore.pb import Message, Value
from localcloud.firestore.query import Order, Query
from localcloud.firestore.scan import count, run
from localcloud.firestore.store import Store
from localcloud.firestore.values import lookup

_MAX_AGGREGATIONS = 5
_INT_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregation:
    alias: str
    operator: Literal["count", "sum", "avg"]
    path: FieldPath | None = None
    up_to: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregated:
    values: dict[str, Message]
    entries: int
    """How many index entries were read: a thousand of them are billed as one document."""


def parse_aggregations(aggregations: list[Message]) -> tuple[Aggregation, ...]:
    if not aggregations:
        raise InvalidArgument("Aggregations can not be empty.")
    if len(aggregations) > _MAX_AGGREGATIONS:
        raise InvalidArgument(
            f"The maximum number of aggregations allowed in an aggregation query is {_MAX_AGGREGATIONS}."
            f" Received: {len(aggregations)}"
        )
    parsed = []
    for number, aggregation in enumerate(aggregations, start=1):
        alias = aggregation.alias or f"field_{number}"
        operator = aggregation.WhichOneof("operator")
        if operator == "count":
            up_to = aggregation.count.up_to.value if aggregation.count.HasField("up_to") else None
            if up_to is not None and up_to <= 0:
                raise InvalidArgument("count.up_to must be greater than zero.")
            parsed.append(Aggregation(alias=alias, operator="count", up_to=up_to))
        elif operator in {"sum", "avg"}:
            path = parse_field_path(getattr(aggregation, operator).field.field_path)
            if path == NAME:
                raise InvalidArgument(f"{operator} of __name__ is not allowed.")
            parsed.append(Aggregation(alias=alias, operator=operator, path=path))
        else:
            raise InvalidArgument("An aggregation needs an operator: count, sum or avg.")
    aliases = [item.alias for item in parsed]
    for alias in aliases:
        if aliases.count(alias) > 1:
            raise InvalidArgument(f"Aggregation aliases contain duplicate alias: {alias}")
    return tuple(parsed)


def aggregate(
    store: Store, query: Query, aggregations: tuple[Aggregation, ...], at: int | None = None
) -> Aggregated:
    if at is None and len(aggregations) == 1 and aggregations[0].operator == "count":
        number = count(store, query, aggregations[0].up_to)
        if number is not None:
            return Aggregated(values={aggregations[0].alias: Value(integer_value=number)}, entries=number)
    documents, _, _ = run(store, over_the_fields(query, aggregations), at)
    values = {item.alias: _value(item, documents) for item in aggregations}
    return Aggregated(values=values, entries=len(documents))


def over_the_fields(query: Query, aggregations: tuple[Aggregation, ...]) -> Query:
    """Google walks an index of the fields that are added up: only documents that have them all are seen, and
    a limit without an order cuts by their values. Where a cursor names a document they come after the name.
    """
    paths = [item.path for item in aggregations if item.path is not None]
    ordered = [order for order in query.orders if order.path != NAME]
    tail = query.orders[len(ordered) :]
    missing = [path for path in dict.fromkeys(paths) if all(path != order.path for order in ordered)]
    added = [Order(path=path, descending=tail[0].descending) for path in missing]
    bounds = [bound for bound in (query.start, query.end) if bound is not None]
    if any(len(bound.parts) > len(ordered) for bound in bounds):
        return replace(query, orders=(*ordered, *tail, *added))
    return replace(query, orders=(*ordered, *added, *tail))


def _value(aggregation: Aggregation, documents: list[Message]) -> Message:
    if aggregation.path is None:
        number = len(documents)
        return Value(integer_value=number if aggregation.up_to is None else min(number, aggregation.up_to))
    numbers: list[int | float] = []
    for document in documents:
        value = lookup(document.fields, aggregation.path)
        kind = None if value is None else value.WhichOneof("value_type")
        if value is not None and kind in {"integer_value", "double_value"}:
            numbers.append(getattr(value, kind))
    if aggregation.operator == "avg":
        if not numbers:
            return Value(null_value=0)
        return Value(double_value=_total(numbers) / len(numbers))
    total = _total(numbers)
    if isinstance(total, int) and -_INT_MAX - 1 <= total <= _INT_MAX:
        return Value(integer_value=total)
    return Value(double_value=float(total))


def _total(numbers: list[int | float]) -> int | float:
    if all(isinstance(number, int) for number in numbers):
        return sum(numbers)
    if all(math.isfinite(number) for number in numbers):
        with suppress(OverflowError):
            return math.fsum(numbers)
    return sum(float(number) for number in numbers)
