"""What Firestore refuses to store: too large, too deep, or reserved."""

from __future__ import annotations

import re

from localcloud.firestore.errors import InvalidArgument
from localcloud.firestore.paths import DocumentName
from localcloud.firestore.pb import Message
from localcloud.firestore.values import is_vector

MAX_REQUEST_BYTES = 10 * 1024 * 1024
MAX_DOCUMENT_BYTES = 1024 * 1024
_MAX_FIELD_NAME_BYTES = 1500
_MAX_DEPTH = 20
_RESERVED_FIELD = re.compile(r"__.*__", re.DOTALL)
_FIXED_SIZES = {
    "null_value": 1,
    "boolean_value": 1,
    "integer_value": 8,
    "double_value": 8,
    "timestamp_value": 8,
    "geo_point_value": 16,
}


def check_document(name: DocumentName, document: Message) -> None:
    # Counted as Google documents it: 16 bytes for the name and one for each id's end, 32 for the document.
    size = 48 + sum(len(segment.encode()) + 1 for segment in name.segments)
    size += _fields_size(document.fields, depth=1)
    if size > MAX_DOCUMENT_BYTES:
        raise InvalidArgument(
            f"The document {name} cannot be written because its size ({size:,} bytes) exceeds the maximum"
            f" allowed size of {MAX_DOCUMENT_BYTES:,} bytes."
        )


def check_value(value: Message, *, in_array: bool = False) -> None:
    if in_array and value.WhichOneof("value_type") == "array_value":
        raise InvalidArgument("Nested arrays are not allowed.")
    _value_size(value, depth=1)


def _fields_size(fields: Message, depth: int) -> int:
    size = 0
    for name in fields:
        length = len(name.encode())
        if not name:
            raise InvalidArgument("A field name must not be empty.")
        if length > _MAX_FIELD_NAME_BYTES:
            raise InvalidArgument(
                f'The field name "{name[:40]}…" is longer than {_MAX_FIELD_NAME_BYTES} bytes.'
            )
        if _RESERVED_FIELD.fullmatch(name):
            raise InvalidArgument(f'The field name "{name}" is reserved.')
        size += length + 1 + _value_size(fields[name], depth)
    return size


def _value_size(value: Message, depth: int) -> int:
    kind = value.WhichOneof("value_type")
    if kind in _FIXED_SIZES:
        return _FIXED_SIZES[kind]
    if kind == "string_value":
        return len(value.string_value.encode()) + 1
    if kind == "bytes_value":
        return len(value.bytes_value)
    if kind == "reference_value":
        return len(value.reference_value.encode()) + 1
    if depth > _MAX_DEPTH:
        raise InvalidArgument(f"A value is nested deeper than {_MAX_DEPTH} levels.")
    if kind == "array_value":
        size = 0
        for element in value.array_value.values:
            if element.WhichOneof("value_type") == "array_value":
                raise InvalidArgument("Nested arrays are not allowed.")
            size += _value_size(element, depth + 1)
        return size
    if kind == "map_value":
        if is_vector(value):
            return 32 + 8 * len(value.map_value.fields["value"].array_value.values)
        return 32 + _fields_size(value.map_value.fields, depth + 1)
    raise InvalidArgument(f"A value of kind {kind or 'none'} cannot be stored.")
