"""What a StructuredQuery means: its filter, full order and cursors, and where a document stands in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from localcloud.firestore.errors import InvalidArgument
from localcloud.firestore.filters import (
    Comparison,
    Filter,
    comparisons,
    disjuncts,
    encoded_field,
    parse_filter,
)
from localcloud.firestore.nearest import Nearest, parse_nearest
from localcloud.firestore.paths import NAME, DocumentName, FieldPath, check_id, parse_field_path
from localcloud.firestore.pb import Message, StructuredQuery
from localcloud.firestore.validation import check_below, check_filter, check_kind, check_orders
from localcloud.firestore.values import REFERENCE, encode, invert


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    path: FieldPath
    descending: bool

    def direct(self, encoded: bytes) -> bytes:
        return invert(encoded) if self.descending else encoded


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A place in the order: positions that start with `prefix` are inside if the bound includes them."""

    prefix: bytes
    parts: tuple[bytes, ...]
    inclusive: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class Query:
    """What is asked for. Programs ask the same again and again: what follows from a query is kept with it."""

    parent: DocumentName
    collection: str | None
    """The collection id; none means documents of every collection."""
    group: bool
    where: Filter | None
    orders: tuple[Order, ...]
    start: Bound | None = None
    end: Bound | None = None
    offset: int = 0
    limit: int | None = None
    projection: tuple[FieldPath, ...] | None = None
    nearest: Nearest | None = None
    """What ranks the documents that are left after offset and limit."""

    @cached_property
    def branches(self) -> list[tuple[Comparison, ...]]:
        """The filter as an OR of ANDs."""
        return disjuncts(self.where)

    @property
    def database(self) -> str:
        return self.parent.database

    def position(self, document: Message) -> bytes | None:
        """Where the document stands in the order; none if it lacks a field of it."""
        parts = []
        for order in self.orders:
            encoded = encoded_field(document, order.path)
            if encoded is None:
                return None
            parts.append(order.direct(encoded))
        return b"".join(parts)

    def place(self, document: Message) -> bytes | None:
        """The position of a document that the query finds, before limit and offset; none if it doesn't."""
        if self.where is not None and not self.where.matches(document):
            return None
        position = self.position(document)
        if position is None:
            return None
        if self.start is not None:
            head = position[: len(self.start.prefix)]
            if head < self.start.prefix or (head == self.start.prefix and not self.start.inclusive):
                return None
        if self.end is not None:
            head = position[: len(self.end.prefix)]
            if head > self.end.prefix or (head == self.end.prefix and not self.end.inclusive):
                return None
        return position

    def covers(self, name: DocumentName) -> bool:
        """Whether a document is in the collections that the query looks at."""
        if name.database != self.database:
            return False
        if self.collection is not None and name.collection != self.collection:
            return False
        if self.group:
            return name.segments[: len(self.parent.segments)] == self.parent.segments
        return name.parent == self.parent.segments


def parse_query(parent: DocumentName, query: Message) -> Query:
    return _parse(parent, query.SerializeToString(deterministic=True))


@lru_cache(maxsize=2048)
def _parse(parent: DocumentName, serialized: bytes) -> Query:
    query = StructuredQuery.FromString(serialized)
    if len(query.from_) > 1:
        raise InvalidArgument("A query must have exactly one collection selector in from.")
    selector = query.from_[0] if query.from_ else None
    collection = (selector.collection_id if selector else "") or None
    if collection is not None:
        check_id(collection)
    where = parse_filter(query.where) if query.HasField("where") else None
    check_filter(where)
    orders = full_order(where, query.order_by)
    directions = [(order.path, order.descending) for order in orders]
    if selector is not None and selector.all_descendants and parent.segments:
        check_below(where, directions)
    if collection is None:
        check_kind(where, directions)
    if query.offset < 0:
        raise InvalidArgument("offset is negative")
    limit = query.limit.value if query.HasField("limit") else None
    if limit is not None and limit < 0:
        raise InvalidArgument("limit is negative")
    explicit = orders[: len(query.order_by)]
    return Query(
        parent=parent,
        collection=collection,
        group=bool(selector.all_descendants) if selector else True,
        where=where,
        orders=orders,
        start=_bound(explicit, query.start_at, start=True) if query.HasField("start_at") else None,
        end=_bound(explicit, query.end_at, start=False) if query.HasField("end_at") else None,
        offset=query.offset,
        limit=limit,
        projection=_projection(query.select) if query.HasField("select") else None,
        nearest=parse_nearest(query.find_nearest) if query.HasField("find_nearest") else None,
    )


def full_order(where: Filter | None, order_by: Sequence[Message]) -> tuple[Order, ...]:
    """The order as written, then the fields of inequalities by name, then the document's name."""
    orders = [
        Order(path=parse_field_path(order.field.field_path), descending=order.direction == 2)
        for order in order_by
    ]
    descending = orders[-1].descending if orders else False
    unequal = {leaf.path for leaf in comparisons(where) if leaf.is_inequality} - {NAME}
    for path in sorted(unequal - {order.path for order in orders}):
        orders.append(Order(path=path, descending=descending))
    check_orders([order.path for order in orders])
    if all(order.path != NAME for order in orders):
        orders.append(Order(path=NAME, descending=descending))
    return tuple(orders)


def _bound(orders: tuple[Order, ...], cursor: Message, *, start: bool) -> Bound:
    if len(cursor.values) > len(orders):
        raise InvalidArgument("Cursor has too many values.")
    parts = []
    for order, value in zip(orders, cursor.values, strict=False):
        encoded = encode(value)
        if order.path == NAME and encoded[0] != REFERENCE:
            raise InvalidArgument("Cursor __key__ value is not a document reference.")
        parts.append(order.direct(encoded))
    # "before" puts the cursor in front of the documents it names: a start then includes them, an end doesn't.
    inclusive = bool(cursor.before) if start else not cursor.before
    return Bound(prefix=b"".join(parts), parts=tuple(parts), inclusive=inclusive)


def _projection(select: Message) -> tuple[FieldPath, ...]:
    paths = tuple(parse_field_path(field.field_path) for field in select.fields)
    return tuple(path for path in paths if path != NAME)
