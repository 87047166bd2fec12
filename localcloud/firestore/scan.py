"""How a query is answered without looking at every document.

Each conjunction of the filter walks one index: equalities first, then the query's order, so that the walk is
one stretch in the right order and stops at the limit. The walks of an OR are merged. Whatever a walk yields
is still checked against the whole query, so an index can only narrow the search, never change the answer.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from localcloud.firestore.filters import Comparison
from localcloud.firestore.indexes import IndexShape, Part
from localcloud.firestore.paths import NAME, after_prefix, parse_name
from localcloud.firestore.pb import Document, Message
from localcloud.firestore.query import Bound, Query
from localcloud.firestore.store import Span, Store, below, version
from localcloud.firestore.values import FIRST_NUMBER, NUMBER, encode_reference, invert, keep_only

_RANGES = {"<", "<=", ">", ">="}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    position: bytes
    document: Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One walk: along an index, or along the names when there is nothing to index."""

    shape: IndexShape | None
    span: Span
    reverse: bool
    exact: bool
    """Everything in the span matches, so it can be counted without looking."""


_PLANS: WeakKeyDictionary[Query, list[Plan]] = WeakKeyDictionary()


def run(store: Store, query: Query, at: int | None = None) -> tuple[list[Message], int, bytes | None]:
    """The documents, how many the offset skipped, and the last position if the limit cut the answer short."""
    stop = None if query.limit is None else query.offset + query.limit
    found = list(itertools.islice(matching(store, query, at), stop))
    skipped = min(query.offset, len(found))
    boundary = found[-1].position if found and stop is not None and len(found) == stop else None
    documents = [item.document for item in found[skipped:]]
    if query.nearest is not None:
        documents = query.nearest.among(documents)
    if query.projection is not None:
        for document in documents:
            keep_only(document, query.projection)
    return documents, skipped, boundary


def matching(store: Store, query: Query, at: int | None = None) -> Iterator[Found]:
    """Every document that the query finds, in order, before offset and limit."""
    if at is not None:
        past = list(store.superseded(query.database, query.collection, at))
        if past or store.last_commit() > at:
            return _matching_in_past(store, query, at, past)
    return _matching_now(store, query)


def count(store: Store, query: Query, up_to: int | None) -> int | None:
    """Counts along one index without reading a document; none where that can't be done."""
    if len(query.branches) != 1 or query.start or query.end or query.offset or query.limit is not None:
        return None
    if query.nearest is not None:
        return None
    (chosen,) = _plans(query)
    if chosen.shape is None or not chosen.exact or (query.group and query.parent.segments):
        return None
    return store.count_index(chosen.shape, query.parent.key, chosen.span, up_to)


def _plans(query: Query) -> list[Plan]:
    found = _PLANS.get(query)
    if found is None:
        found = _PLANS[query] = [plan(query, branch) for branch in query.branches]
    return found


def plan(query: Query, conjunction: tuple[Comparison, ...]) -> Plan:
    reverse = query.orders[-1].descending
    equal: dict[tuple[tuple[str, ...], str], Comparison] = {}
    for leaf in conjunction:
        if leaf.operator in {"==", "contains"} and leaf.path != NAME:
            equal.setdefault((leaf.path, leaf.operator), leaf)
    chosen = [equal[key] for key in sorted(equal)]
    contains = [leaf for leaf in chosen if leaf.operator == "contains"]
    chosen = [leaf for leaf in chosen if leaf.operator == "=="] + contains[:1]
    constant = {leaf.path for leaf in chosen if leaf.operator == "=="}
    ordered = []
    for order in query.orders:
        if order.path == NAME:
            break
        if order.path not in constant:
            ordered.append(order)
    if query.collection is None or not (chosen or ordered):
        return Plan(shape=None, span=_name_span(query, conjunction), reverse=reverse, exact=False)
    parts = [
        Part(path=leaf.path, kind="contains" if leaf.operator == "contains" else "ascending")
        for leaf in chosen
    ]
    # An index is walked backwards for a descending name, so directions are kept relative to the name's.
    parts += [
        Part(path=order.path, kind="ascending" if order.descending == reverse else "descending")
        for order in ordered
    ]
    prefix = b"".join(leaf.operand for leaf in chosen)
    span, used = below(prefix), len(chosen)
    if ordered and parts[len(chosen)].kind == "ascending":
        ranges = [leaf for leaf in conjunction if leaf.path == ordered[0].path and leaf.operator in _RANGES]
        used += len(ranges)
        for leaf in ranges:
            span = _narrow(span, prefix, leaf)
    if not any(order.path in constant for order in query.orders):
        span = _narrow_by_cursors(span, prefix, query, len(ordered), reverse=reverse)
    shape = IndexShape(
        database=query.database, collection=query.collection, group=query.group, parts=tuple(parts)
    )
    return Plan(shape=shape, span=span, reverse=reverse, exact=used == len(conjunction))


def _narrow(span: Span, prefix: bytes, leaf: Comparison) -> Span:
    kind = leaf.operand[:1]
    lowest = FIRST_NUMBER if leaf.operand[0] == NUMBER else kind
    low = prefix + (leaf.operand if leaf.operator in {">", ">="} else lowest)
    high = prefix + (leaf.operand if leaf.operator in {"<", "<="} else kind)
    if leaf.operator == ">":
        low = after_prefix(low) or low
    if leaf.operator == "<":
        return _intersect(span, Span(low=low, high=high))
    return _intersect(span, Span(low=low, high=after_prefix(high)))


def _narrow_by_cursors(span: Span, prefix: bytes, query: Query, fields: int, *, reverse: bool) -> Span:
    """Cursors speak in the query's directions; the index runs in the same ones, or all turned round."""
    for bound, is_start in ((query.start, True), (query.end, False)):
        if bound is None or fields == 0:
            continue
        head = prefix + _in_index_direction(bound, fields, reverse=reverse)
        if is_start != reverse:
            span = _intersect(span, Span(low=head))
        else:
            span = _intersect(span, Span(high=after_prefix(head)))
    return span


def _in_index_direction(bound: Bound, fields: int, *, reverse: bool) -> bytes:
    joined = b"".join(bound.parts[:fields])
    return invert(joined) if reverse else joined


def _intersect(left: Span, right: Span) -> Span:
    highs = [high for high in (left.high, right.high) if high is not None]
    return Span(low=max(left.low, right.low), high=min(highs) if highs else None)


def _name_span(query: Query, conjunction: tuple[Comparison, ...]) -> Span:
    span = below(query.parent.key)
    head = encode_reference(f"{query.database}/documents")[:-1]
    for leaf in conjunction:
        if leaf.path != NAME or not leaf.operand.startswith(head):
            continue
        key = leaf.operand[len(head) : -1]
        if leaf.operator in {">", ">=", "=="}:
            span = _intersect(span, Span(low=key))
        if leaf.operator in {"<", "<=", "=="}:
            span = _intersect(span, Span(high=key + b"\x00"))
    first = query.orders[0]
    if first.path == NAME:
        for bound, is_start in ((query.start, True), (query.end, False)):
            if bound is None or not bound.parts:
                continue
            encoded = invert(bound.parts[0]) if first.descending else bound.parts[0]
            key = encoded[len(head) : -1]
            span = _intersect(
                span, Span(low=key) if is_start != first.descending else Span(high=key + b"\x00")
            )
    return span


def _walk(store: Store, query: Query, chosen: Plan) -> Iterator[Found]:
    parent = query.parent.key
    if chosen.shape is None:
        rows = store.walk(
            query.database,
            query.collection,
            None if query.group else parent,
            chosen.span,
            reverse=chosen.reverse,
        )
    else:
        rows = store.walk_index(chosen.shape, parent, chosen.span, reverse=chosen.reverse)
    below_parent = query.group and query.parent.segments
    for key, body in rows:
        if below_parent and not key.startswith(parent):
            continue
        document = Document.FromString(body)
        position = query.place(document)
        if position is not None:
            yield Found(position=position, document=document)


def _matching_now(store: Store, query: Query) -> Iterator[Found]:
    plans = _plans(query)
    if len(plans) == 1:
        walks = _walk(store, query, plans[0])
    else:
        walks = heapq.merge(
            *(_walk(store, query, chosen) for chosen in plans), key=lambda item: item.position
        )
    last = None
    for found in walks:
        if found.position != last:
            yield found
        last = found.position


def _matching_in_past(
    store: Store, query: Query, at: int, past: list[tuple[bytes, bytes]]
) -> Iterator[Found]:
    found: list[Found] = []
    for _, body in past:
        document = Document.FromString(body)
        if not query.covers(parse_name(document.name)):
            continue
        position = query.place(document)
        if position is not None:
            found.append(Found(position=position, document=document))
    found.sort(key=lambda item: item.position)
    unchanged = (item for item in _matching_now(store, query) if (version(item.document) or 0) <= at)
    return heapq.merge(unchanged, found, key=lambda item: item.position)
