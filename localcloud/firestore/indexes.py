"""Which index a query walks, and which entries a document has in it.

Indexes are made when a query first asks for them and kept up from then on: a collection pays only for the
shapes it is queried by. An entry is the joined bytes of the indexed fields; a document that lacks one of them
has no entry, which is exactly Firestore's rule that a query never sees documents without its fields.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal, TypeAlias

from localcloud.firestore.paths import FieldPath
from localcloud.firestore.pb import Message
from localcloud.firestore.values import encode, invert, lookup

Kind: TypeAlias = Literal["ascending", "descending", "contains"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    path: FieldPath
    kind: Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexShape:
    """What is indexed, in a collection (within one parent) or in all collections of one id (group)."""

    database: str
    collection: str
    group: bool
    parts: tuple[Part, ...]

    def parts_json(self) -> str:
        return json.dumps([[list(part.path), part.kind] for part in self.parts], separators=(",", ":"))


def parts_from_json(text: str) -> tuple[Part, ...]:
    return tuple(Part(path=tuple(path), kind=kind) for path, kind in json.loads(text))


def entries(parts: tuple[Part, ...], document: Message) -> set[bytes]:
    """The document's entries: one, none, or one for each distinct element of an array that is searched in."""
    found = {b""}
    for part in parts:
        value = lookup(document.fields, part.path)
        if value is None:
            return set()
        if part.kind == "contains":
            if value.WhichOneof("value_type") != "array_value":
                return set()
            tails = {encode(element) for element in value.array_value.values}
        else:
            encoded = encode(value)
            tails = {invert(encoded) if part.kind == "descending" else encoded}
        found = {head + tail for head in found for tail in tails}
    return found
