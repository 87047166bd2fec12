"""What a write makes of a document: preconditions, masks and transforms applied to the version before."""

from __future__ import annotations

import math
from dataclasses import dataclass

from localcloud.firestore.errors import (
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    Unimplemented,
)
from localcloud.firestore.limits import check_document, check_value
from localcloud.firestore.paths import NAME, DocumentName, parse_document, parse_field_path
from localcloud.firestore.pb import Document, Message, Value, WriteResult, micros, timestamp
from localcloud.firestore.values import assign, encode, lookup, null, remove

_INT_MAX = (1 << 63) - 1
_INT_MIN = -(1 << 63)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A document after one write, and what the writer is told."""

    document: Message | None
    result: Message


def target(write: Message) -> DocumentName:
    operation = write.WhichOneof("operation")
    if operation == "update":
        return parse_document(write.update.name)
    if operation == "delete":
        return parse_document(write.delete)
    if operation == "transform":
        return parse_document(write.transform.document)
    raise InvalidArgument("A write must have an operation: update, delete or transform.")


def apply_write(write: Message, name: DocumentName, old: Message | None, at: int) -> Outcome:
    """Raises if a precondition fails or the result would be no valid document."""
    check_precondition(write.current_document, str(name), old, at)
    if write.WhichOneof("operation") == "delete":
        if write.HasField("update_mask") or write.update_transforms:
            raise InvalidArgument("A delete takes neither update_mask nor update_transforms.")
        return Outcome(document=None, result=WriteResult())
    new = _updated(write, name, old)
    transforms = (
        write.transform.field_transforms
        if write.WhichOneof("operation") == "transform"
        else write.update_transforms
    )
    results = [_transform(new.fields, transform, at) for transform in transforms]
    if old is not None:
        new.create_time.CopyFrom(old.create_time)
        new.update_time.CopyFrom(old.update_time)
    if old is not None and _bytes(new) == _bytes(old):
        new = old
    else:
        now = timestamp(at)
        if old is None:
            new.create_time.CopyFrom(now)
        new.update_time.CopyFrom(now)
        check_document(name, new)
    return Outcome(document=new, result=WriteResult(update_time=new.update_time, transform_results=results))


def check_precondition(condition: Message, name: str, old: Message | None, at: int) -> None:
    kind = condition.WhichOneof("condition_type")
    if kind == "exists":
        if condition.exists and old is None:
            raise NotFound(f"No document to update: {name}")
        if not condition.exists and old is not None:
            raise AlreadyExists(f"Document already exists: {name}")
    elif kind == "update_time":
        wanted = condition.update_time
        if wanted.nanos % 1000:
            raise InvalidArgument("update_time must be in whole microseconds.")
        if micros(wanted) > at:
            raise InvalidArgument("The update_time of a precondition must not be in the future.")
        if old is None or micros(old.update_time) != micros(wanted):
            stored = "none" if old is None else micros(old.update_time)
            raise FailedPrecondition(
                f"the stored version ({stored}) does not match the required base version"
                f" ({micros(wanted)}): {name}"
            )


def _updated(write: Message, name: DocumentName, old: Message | None) -> Message:
    new = Document(name=str(name))
    if write.WhichOneof("operation") == "transform" or write.HasField("update_mask"):
        if old is not None:
            new.CopyFrom(old)
        for text in write.update_mask.field_paths:
            path = parse_field_path(text)
            if path == NAME:
                raise InvalidArgument("__name__ cannot be in an update_mask.")
            value = lookup(write.update.fields, path)
            if value is None:
                remove(new.fields, path)
            else:
                assign(new.fields, path, value)
    else:
        new.fields.MergeFrom(write.update.fields)
    return new


def _bytes(document: Message) -> bytes:
    serialized: bytes = document.SerializeToString(deterministic=True)
    return serialized


def _transform(fields: Message, transform: Message, at: int) -> Message:
    path = parse_field_path(transform.field_path)
    kind = transform.WhichOneof("transform_type")
    stored = lookup(fields, path)
    if kind == "set_to_server_value":
        if transform.set_to_server_value != 1:
            raise InvalidArgument("set_to_server_value must be REQUEST_TIME.")
        # The service promises server time in milliseconds.
        result = Value(timestamp_value=timestamp(at // 1000 * 1000))
    elif kind in {"increment", "maximum", "minimum"}:
        operand = getattr(transform, kind)
        if not _is_number(operand):
            raise InvalidArgument(f"The operand of {kind} must be a number.")
        result = operand if stored is None or not _is_number(stored) else _combine(kind, stored, operand)
    elif kind in {"append_missing_elements", "remove_all_from_array"}:
        elements = list(getattr(transform, kind).values)
        for element in elements:
            check_value(element, in_array=True)
        assign(fields, path, _array(kind, stored, elements))
        return null()
    else:
        raise Unimplemented(f"The field transform {kind or 'without a type'} is not implemented.")
    assign(fields, path, result)
    answer = Value()
    answer.CopyFrom(result)
    return answer


def _is_number(value: Message) -> bool:
    return value.WhichOneof("value_type") in {"integer_value", "double_value"}


def _plain(value: Message) -> int | float:
    number: int | float = getattr(value, value.WhichOneof("value_type"))
    return number


def _combine(kind: str, stored: Message, operand: Message) -> Message:
    left, right = _plain(stored), _plain(operand)
    if kind == "increment":
        if isinstance(left, int) and isinstance(right, int):
            return Value(integer_value=max(_INT_MIN, min(_INT_MAX, left + right)))
        return Value(double_value=float(left) + float(right))
    if math.isnan(left) or math.isnan(right):
        return Value(double_value=math.nan)
    better = right > left if kind == "maximum" else right < left
    kept = Value()
    kept.CopyFrom(operand if better else stored)
    return kept


def _array(kind: str, stored: Message | None, elements: list[Message]) -> Message:
    result = Value()
    result.array_value.SetInParent()
    present = (
        list(stored.array_value.values)
        if stored is not None and stored.WhichOneof("value_type") == "array_value"
        else []
    )
    if kind == "remove_all_from_array":
        unwanted = {encode(element) for element in elements}
        result.array_value.values.extend(item for item in present if encode(item) not in unwanted)
        return result
    seen = {encode(item) for item in present}
    result.array_value.values.extend(present)
    for element in elements:
        encoded = encode(element)
        if encoded not in seen:
            seen.add(encoded)
            result.array_value.values.append(element)
    return result
