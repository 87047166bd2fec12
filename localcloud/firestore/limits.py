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
_FIRST_SECOND = -62_135_596_800
_LAST_SECOND = 253_402_300_799
_NESTED = "Cannot convert an array value in an array value."
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
    """Refuses what cannot be stored, and cuts timestamps to the microseconds that are."""
    # Counted as Google documents it: 16 bytes for the name and one for each id's end, 32 for the document.
    size = 48 + sum(len(segment.encode()) + 1 for segment in name.segments)
    size += _fields_size(document.fields, depth=1)
    if size > MAX_DOCUMENT_BYTES:
        raise InvalidArgument(
            f"Document '{name}' cannot be written because its size ({size:,} bytes) exceeds the maximum"
            f" allowed size of {MAX_DOCUMENT_BYTES:,} bytes."
        )


def check_value(value: Message, *, in_array: bool = False) -> None:
    if in_array and value.WhichOneof("value_type") == "array_value":
        raise InvalidArgument(_NESTED)
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
        if kind == "timestamp_value":
            _check_time(value.timestamp_value)
        elif kind == "geo_point_value":
            _check_point(value.geo_point_value)
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
                raise InvalidArgument(_NESTED)
            size += _value_size(element, depth + 1)
        return size
    if kind == "map_value":
        if is_vector(value):
            return 32 + 8 * len(value.map_value.fields["value"].array_value.values)
        return 32 + _fields_size(value.map_value.fields, depth + 1)
    raise InvalidArgument(f"A value of kind {kind or 'none'} cannot be stored.")


def _check_time(stamp: Message) -> None:
    if not _FIRST_SECOND <= stamp.seconds <= _LAST_SECOND or not 0 <= stamp.nanos < 1_000_000_000:
        raise InvalidArgument("A timestamp must be between the years 1 and 9999.")
    if stamp.nanos % 1000:
        stamp.nanos -= stamp.nanos % 1000


def _check_point(point: Message) -> None:
    if not -90 <= point.latitude <= 90:
        raise InvalidArgument(f"The latitude {point.latitude} is not between -90 and 90.")
    if not -180 <= point.longitude <= 180:
        raise InvalidArgument(f"The longitude {point.longitude} is not between -180 and 180.")
