"""How values sort: every value becomes bytes whose order is Firestore's total order across all types.

Two values are equal to Firestore when their bytes are equal (3 and 3.0 are), and no encoding is a prefix of
another, so encodings can be joined, inverted for descending order, and compared by SQLite.
"""

from __future__ import annotations

import math
import struct
from typing import Final

from localcloud.firestore.errors import InvalidArgument
from localcloud.firestore.paths import FieldPath, encode_segments, encode_text, parse_name
from localcloud.firestore.pb import Message, Value

NULL: Final = 0x10
BOOLEAN: Final = 0x20
NUMBER: Final = 0x30
TIMESTAMP: Final = 0x40
STRING: Final = 0x50
BYTES: Final = 0x60
REFERENCE: Final = 0x70
GEO_POINT: Final = 0x80
ARRAY: Final = 0x90
VECTOR: Final = 0xA0
MAP: Final = 0xB0

_END = b"\x01"
_INVERT = bytes(255 - byte for byte in range(256))
_SIGN = 1 << 63
NULL_BYTES: Final = bytes([NULL])
NAN_BYTES: Final = bytes([NUMBER]) + bytes(10)
FIRST_NUMBER: Final = bytes([NUMBER]) + bytes(9) + b"\x01"
"""Between NaN and every number that can be compared."""


def invert(encoded: bytes) -> bytes:
    """The same bytes in descending order."""
    return encoded.translate(_INVERT)


def encode(value: Message) -> bytes:
    kind = value.WhichOneof("value_type")
    if kind == "string_value":
        return b"\x50" + encode_text(value.string_value.encode())
    if kind == "integer_value":
        return _integer(value.integer_value)
    if kind == "double_value":
        return _number(value.double_value)
    if kind == "boolean_value":
        return b"\x20\x01" if value.boolean_value else b"\x20\x00"
    if kind == "null_value":
        return NULL_BYTES
    if kind == "timestamp_value":
        stamp = value.timestamp_value
        return b"\x40" + struct.pack(">QI", stamp.seconds + _SIGN, stamp.nanos // 1000)
    if kind == "bytes_value":
        return b"\x60" + encode_text(value.bytes_value)
    if kind == "reference_value":
        return encode_reference(value.reference_value)
    if kind == "geo_point_value":
        point = value.geo_point_value
        return b"\x80" + _double(point.latitude) + _double(point.longitude)
    if kind == "array_value":
        return b"\x90" + b"".join(map(encode, value.array_value.values)) + _END
    if kind == "map_value":
        return _map(value)
    raise InvalidArgument(f"A value of kind {kind or 'none'} cannot be stored or compared.")


def encode_reference(name: str) -> bytes:
    parsed = parse_name(name)
    return b"\x70" + encode_text(parsed.database.encode()) + encode_segments(parsed.segments) + b"\x00"


def is_vector(value: Message) -> bool:
    fields = value.map_value.fields
    return "__type__" in fields and fields["__type__"].string_value == "__vector__"


def _map(value: Message) -> bytes:
    fields = value.map_value.fields
    if is_vector(value):
        elements = fields["value"].array_value.values
        return b"\xa0" + struct.pack(">I", len(elements)) + b"".join(map(encode, elements))
    names = sorted(fields, key=str.encode)
    pairs = (b"\x50" + encode_text(name.encode()) + encode(fields[name]) for name in names)
    return b"\xb0" + b"".join(pairs) + _END


def _double(number: float) -> bytes:
    (bits,) = struct.unpack(">Q", struct.pack(">d", number + 0.0))  # + 0.0 makes one zero of two
    return struct.pack(">Q", bits ^ 0xFFFFFFFFFFFFFFFF if bits & _SIGN else bits | _SIGN)


def _number(number: float) -> bytes:
    if math.isnan(number):
        return NAN_BYTES
    return b"\x30" + _double(number) + b"\x80\x00"


def _integer(number: int) -> bytes:
    # A double holds 53 bits: what it rounds away of a large integer follows, to compare exactly.
    nearest = float(number)
    return b"\x30" + _double(nearest) + struct.pack(">H", 0x8000 + number - int(nearest))


def lookup(fields: Message, path: FieldPath) -> Message | None:
    """The value at a field path, or none."""
    for name in path[:-1]:
        if name not in fields:
            return None
        value = fields[name]
        if value.WhichOneof("value_type") != "map_value":
            return None
        fields = value.map_value.fields
    return fields[path[-1]] if path[-1] in fields else None  # noqa: SIM401


def assign(fields: Message, path: FieldPath, value: Message) -> None:
    """Sets the value at a field path, making maps on the way where there are none."""
    for name in path[:-1]:
        step = fields[name]
        if step.WhichOneof("value_type") != "map_value":
            step.Clear()
            step.map_value.SetInParent()
        fields = step.map_value.fields
    fields[path[-1]].CopyFrom(value)


def remove(fields: Message, path: FieldPath) -> None:
    for name in path[:-1]:
        if name not in fields or fields[name].WhichOneof("value_type") != "map_value":
            return
        fields = fields[name].map_value.fields
    if path[-1] in fields:
        del fields[path[-1]]


def keep_only(document: Message, paths: tuple[FieldPath, ...]) -> None:
    """Applies a read mask or a projection to a document in place."""
    kept = type(document)()
    for path in paths:
        value = lookup(document.fields, path)
        if value is not None:
            assign(kept.fields, path, value)
    document.fields.clear()
    for name in kept.fields:
        document.fields[name].CopyFrom(kept.fields[name])


def null() -> Message:
    return Value(null_value=0)
