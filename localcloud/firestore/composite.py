"""Which composite indexes production would need for the queries that were run here.

Firestore indexes every field by itself, and joins such indexes for equalities. What it doesn't do by itself:
an order or an inequality besides something else, or (in a collection group) anything but the name. A query of
that kind fails in production until somebody declares the index.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from localcloud.firestore.filters import Comparison
from localcloud.firestore.paths import NAME, quote_field_path
from localcloud.firestore.query import Query

Way: TypeAlias = Literal["ASCENDING", "DESCENDING", "CONTAINS"]
Declared: TypeAlias = Mapping[str, object]
_FILE = "indexes.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    collection: str
    group: bool
    fields: tuple[tuple[str, Way], ...]
    equalities: int
    """How many of the fields, the first ones, are only compared for equality: their direction is free."""
    vector: tuple[str, int] | None = None
    """The field that a vector search goes along, and its dimensions."""

    @property
    def is_automatic(self) -> bool:
        return (
            not self.group
            and self.vector is None
            and (len(self.fields) == self.equalities or len(self.fields) == 1)
        )

    def as_declared(self) -> dict[str, object]:
        """In the shape of a firestore.indexes.json."""
        fields: list[dict[str, object]] = [
            {"fieldPath": path, ("arrayConfig" if way == "CONTAINS" else "order"): way}
            for path, way in self.fields
        ]
        if self.vector is not None:
            path, dimensions = self.vector
            fields.append({"fieldPath": path, "vectorConfig": {"dimension": dimensions, "flat": {}}})
        return {
            "collectionGroup": self.collection,
            "queryScope": "COLLECTION_GROUP" if self.group else "COLLECTION",
            "fields": fields,
        }


def indexes_of(query: Query) -> list[Index]:
    """The index that each conjunction of the query walks in production."""
    if query.collection is None:
        return []
    found = [_index(query, query.collection, conjunction) for conjunction in query.branches]
    return list(dict.fromkeys(found))


def missing(needed: Iterable[Index], declared: Sequence[Declared]) -> list[Index]:
    """What is needed and neither declared nor answered by joining declared indexes."""
    return [index for index in needed if not _is_answered(index, declared)]


def write_indexes(directory: Path, needed: Iterable[Index]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    noted = [{**index.as_declared(), "equalities": index.equalities} for index in needed]
    fresh = directory / f"{_FILE}.new"
    fresh.write_text(json.dumps({"indexes": noted}, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    fresh.replace(directory / _FILE)


def read_indexes(directory: Path) -> list[Index]:
    """What a server that keeps its data in a directory has noted there."""
    path = directory / _FILE
    if not path.exists():
        return []
    return [
        Index(
            collection=noted["collectionGroup"],
            group=noted["queryScope"] == "COLLECTION_GROUP",
            fields=tuple(_fields(noted)),
            equalities=noted["equalities"],
            vector=_vector(noted),
        )
        for noted in json.loads(path.read_text(encoding="utf-8"))["indexes"]
    ]


def _index(query: Query, collection: str, conjunction: tuple[Comparison, ...]) -> Index:
    equal = {leaf.path for leaf in conjunction if leaf.operator == "=="} - {NAME}
    contained = {leaf.path for leaf in conjunction if leaf.operator == "contains"}
    fields: list[tuple[str, Way]] = [(quote_field_path(path), "ASCENDING") for path in sorted(equal)]
    fields += [(quote_field_path(path), "CONTAINS") for path in sorted(contained)]
    equalities = len(fields)
    for order in query.orders:
        if order.path != NAME and order.path not in equal:
            fields.append((quote_field_path(order.path), "DESCENDING" if order.descending else "ASCENDING"))
    nearest = query.nearest
    return Index(
        collection=collection,
        group=query.group,
        fields=tuple(fields),
        equalities=equalities,
        vector=None if nearest is None else (quote_field_path(nearest.path), len(nearest.vector)),
    )


def _is_answered(needed: Index, declared: Sequence[Declared]) -> bool:
    """Indexes with the same order behind different equalities are joined; each may be read backwards."""
    own = needed.as_declared()
    equal = set(needed.fields[: needed.equalities])
    tail = list(needed.fields[needed.equalities :])
    covered: set[tuple[str, Way]] = set()
    for index in declared:
        if index["collectionGroup"] != needed.collection:
            continue
        if index.get("queryScope", "COLLECTION") != own["queryScope"] or _vector(index) != needed.vector:
            continue
        fields = _fields(index)
        start = len(fields) - len(tail)
        head = {_undirected(field) for field in fields[: max(0, start)]}
        if start >= 0 and fields[start:] in (tail, _turned(tail)) and head <= equal:
            covered |= head
            if covered == equal:
                return True
    return False


def _undirected(field: tuple[str, Way]) -> tuple[str, Way]:
    path, way = field
    return path, "CONTAINS" if way == "CONTAINS" else "ASCENDING"


def _fields(index: Declared) -> list[tuple[str, Way]]:
    return [
        (field["fieldPath"], field.get("order") or field["arrayConfig"])
        for field in _listed(index)
        if field["fieldPath"] != "__name__" and "vectorConfig" not in field
    ]


def _vector(index: Declared) -> tuple[str, int] | None:
    for field in _listed(index):
        if "vectorConfig" in field:
            return field["fieldPath"], int(field["vectorConfig"]["dimension"])
    return None


def _listed(index: Declared) -> list[dict[str, Any]]:
    listed = index["fields"]
    if not isinstance(listed, list):
        raise TypeError("fields must be a list")
    return listed


def _turned(fields: list[tuple[str, Way]]) -> list[tuple[str, Way]]:
    """The same index read backwards."""
    other: dict[Way, Way] = {"ASCENDING": "DESCENDING", "DESCENDING": "ASCENDING", "CONTAINS": "CONTAINS"}
    return [(path, other[way]) for path, way in fields]
