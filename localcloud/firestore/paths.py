"""How documents and fields are named, and in which order names sort.

A document's key is its path as bytes: the keys of a collection are contiguous, the keys below a document
start with the document's own key, and comparing keys as bytes compares documents by name as Firestore does.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeAlias

from localcloud.firestore.errors import InvalidArgument

FieldPath: TypeAlias = tuple[str, ...]
NAME: FieldPath = ("__name__",)

_DATABASE = re.compile(r"projects/([^/]+)/databases/([^/]+)")
_NUMERIC_ID = re.compile(r"__id(-?[0-9]{1,19})__")
# Google documents __.*__, but takes four underscores alone.
_RESERVED = re.compile(r"__.+__", re.DOTALL)
_SIMPLE_FIELD = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
_QUOTED_FIELD = re.compile(r"`((?:[^`\\]|\\.)+)`", re.DOTALL)
_MAX_ID_BYTES = 1500
_MAX_NAME_BYTES = 6 * 1024
_MAX_DEPTH = 100
_END = b"\x00\x01"


@dataclass(frozen=True, kw_only=True)
class DocumentName:
    """The full name of a document, or of the root of a database when it has no segments.

    Names are parsed once and used often, so what follows from one is kept with it.
    """

    database: str
    segments: tuple[str, ...]

    @property
    def collection(self) -> str:
        return self.segments[-2]

    @property
    def parent(self) -> tuple[str, ...]:
        return self.segments[:-2]

    @cached_property
    def key(self) -> bytes:
        return encode_segments(self.segments)

    @cached_property
    def parent_key(self) -> bytes:
        return encode_segments(self.segments[:-2])

    @cached_property
    def text(self) -> str:
        root = f"{self.database}/documents"
        return f"{root}/{'/'.join(self.segments)}" if self.segments else root

    def __str__(self) -> str:
        return self.text

    def __hash__(self) -> int:
        return hash(self.key)


@lru_cache(maxsize=1024)
def check_database(name: str) -> str:
    if not _DATABASE.fullmatch(name):
        raise InvalidArgument(f'Invalid database name "{name}": expected projects/{{p}}/databases/{{d}}.')
    return name


@lru_cache(maxsize=8192)
def parse_name(name: str) -> DocumentName:
    """Reads a name without judging the ids in it, as references and query bounds need it."""
    match = _DATABASE.match(name)
    rest = name[match.end() :] if match else ""
    if not match or not (rest == "/documents" or rest.startswith("/documents/")):
        raise InvalidArgument(
            f'Document name "{name}" lacks "projects/{{p}}/databases/{{d}}/documents" at index 0.'
        )
    path = rest[len("/documents/") :]
    segments = tuple(path.split("/")) if path else ()
    if any(not segment for segment in segments):
        raise InvalidArgument(f'Document name "{name}" has an empty path part.')
    return DocumentName(database=match.group(0), segments=segments)


@lru_cache(maxsize=8192)
def parse_document(name: str) -> DocumentName:
    """The name of a document that may be read or written."""
    parsed = parse_name(name)
    if not parsed.segments or len(parsed.segments) % 2:
        raise InvalidArgument(f'Document name "{name}" names no document: the number of parts must be even.')
    if len(parsed.segments) > 2 * _MAX_DEPTH or len(name.encode()) > _MAX_NAME_BYTES:
        raise InvalidArgument(f'Document name "{name[:80]}…" is too long.')
    for segment in parsed.segments:
        check_id(segment)
    return parsed


def parse_parent(name: str) -> DocumentName:
    """A document, or the root of the database: what collections hang on."""
    parsed = parse_name(name)
    return parse_document(name) if parsed.segments else parsed


def check_id(segment: str) -> str:
    if not segment:
        raise InvalidArgument("A collection or document id must not be empty.")
    if "/" in segment:
        raise InvalidArgument(f'The id "{segment}" must not contain "/".')
    if segment in {".", ".."}:
        raise InvalidArgument(f'The id "{segment}" is not allowed.')
    if _RESERVED.fullmatch(segment) and not _NUMERIC_ID.fullmatch(segment):
        raise InvalidArgument(f'Resource id "{segment}" is invalid because it is reserved.')
    if len(segment.encode()) > _MAX_ID_BYTES:
        raise InvalidArgument(f'The id "{segment[:40]}…" is longer than {_MAX_ID_BYTES} bytes.')
    return segment


def encode_text(text: bytes) -> bytes:
    """Bytes that end by themselves, so that encodings can be joined and still sort part by part."""
    return text.replace(b"\x00", b"\x00\xff") + _END


@lru_cache(maxsize=16384)
def encode_segments(segments: tuple[str, ...]) -> bytes:
    parts = []
    for segment in segments:
        numeric = _NUMERIC_ID.fullmatch(segment)
        if numeric and -(1 << 63) <= int(numeric.group(1)) < 1 << 63:
            parts.append(b"\x01" + struct.pack(">Q", int(numeric.group(1)) + (1 << 63)))
        else:
            parts.append(b"\x02" + encode_text(segment.encode()))
    return b"".join(parts)


def decode_segments(key: bytes) -> tuple[str, ...]:
    segments = []
    at = 0
    while at < len(key):
        if key[at] == 1:
            (number,) = struct.unpack(">Q", key[at + 1 : at + 9])
            segments.append(f"__id{number - (1 << 63)}__")
            at += 9
        else:
            end = key.index(_END, at + 1)
            segments.append(key[at + 1 : end].replace(b"\x00\xff", b"\x00").decode())
            at = end + 2
    return tuple(segments)


def after_prefix(prefix: bytes) -> bytes | None:
    """The least bytes greater than everything that starts with `prefix`; none if there is no such thing."""
    trimmed = prefix.rstrip(b"\xff")
    return trimmed[:-1] + bytes([trimmed[-1] + 1]) if trimmed else None


@lru_cache(maxsize=8192)
def parse_field_path(text: str) -> FieldPath:
    names: list[str] = []
    at = 0
    while True:
        match = _QUOTED_FIELD.match(text, at)
        if match:
            names.append(re.sub(r"\\(.)", r"\1", match.group(1), flags=re.DOTALL))
        else:
            match = _SIMPLE_FIELD.match(text, at)
            if not match:
                raise InvalidArgument(f'Invalid property path "{text}".')
            names.append(match.group(0))
        at = match.end()
        if at == len(text):
            return tuple(names)
        if text[at] != ".":
            raise InvalidArgument(f'Invalid property path "{text}".')
        at += 1


def quote_field_path(path: Iterable[str]) -> str:
    return ".".join(
        name if _SIMPLE_FIELD.fullmatch(name) else "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"
        for name in path
    )
