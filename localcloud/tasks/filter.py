"""Which queues a ListQueues filter means: comparisons of any field, joined by AND, OR, NOT and brackets.

The grammar is the part of Google's filter language that the documentation shows (`<= < >= > != = :`);
what lies outside it is refused, never ignored.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from typing import Any

from localcloud.tasks.errors import InvalidArgument
from localcloud.tasks.queue_messages import QueuePb
from localcloud.tasks.times import to_seconds

Accepts = Callable[[Any], bool]
"""Whether a queue's message is meant."""

_WORD = re.compile(r'\s*(?:(?P<text>"(?:[^"\\]|\\.)*")|(?P<sign><=|>=|!=|[<>=:()])|(?P<word>[^\s<>=!:()"]+))')
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "!=": operator.ne,
}
_LONGEST = 4000
_DEEPEST = 20


def queue_filter(text: str) -> Accepts:
    if len(text) > _LONGEST:
        raise InvalidArgument("ListQueuesRequest.filter is too long.")
    words = _split(text)
    if not words:
        return lambda _: True
    parser = _Parser(words)
    accepts = parser.either(0)
    if parser.next is not None:
        raise _invalid(f"{parser.next!r} was not expected")
    return accepts


def _split(text: str) -> list[str]:
    words = []
    position = 0
    text = text.rstrip()
    while position < len(text):
        match = _WORD.match(text, position)
        if not match:
            raise _invalid(f"{text[position : position + 20]!r} makes no sense")
        words.append(match[match.lastgroup or 0])
        position = match.end()
    return words


class _Parser:
    def __init__(self, words: list[str]) -> None:
        self._words = words
        self._at = 0

    @property
    def next(self) -> str | None:
        return self._words[self._at] if self._at < len(self._words) else None

    def _take(self) -> str:
        word = self.next
        if word is None:
            raise _invalid("it ends too soon")
        self._at += 1
        return word

    def either(self, depth: int) -> Accepts:
        choices = [self._both(depth)]
        while self.next == "OR":
            self._take()
            choices.append(self._both(depth))
        return lambda queue: any(accepts(queue) for accepts in choices)

    def _both(self, depth: int) -> Accepts:
        conditions = [self._one(depth)]
        while self.next not in (None, "OR", ")"):
            if self.next == "AND":
                self._take()
            conditions.append(self._one(depth))
        return lambda queue: all(accepts(queue) for accepts in conditions)

    def _one(self, depth: int) -> Accepts:
        if depth > _DEEPEST:
            raise _invalid("it is nested too deep")
        word = self._take()
        if word == "NOT":
            refused = self._one(depth + 1)
            return lambda queue: not refused(queue)
        if word == "(":
            inner = self.either(depth + 1)
            if self._take() != ")":
                raise _invalid("a bracket is not closed")
            return inner
        comparison, value = self._take(), self._take()
        if comparison not in (*_COMPARISONS, ":"):
            raise _invalid(f"{comparison!r} is not a comparison")
        return _condition(_unquoted(word), comparison, value)


def _condition(path: str, comparison: str, value: str) -> Accepts:
    parts = [re.sub(r"([A-Z])", r"_\1", part).lower() for part in path.split(".")]
    field, descriptor = None, QueuePb.DESCRIPTOR
    for part in parts:
        field = descriptor.fields_by_name.get(part) if descriptor is not None else None
        if field is None:
            raise _invalid(f"a queue has no field {path!r}")
        descriptor = field.message_type
    wanted = _wanted(field, value)
    if comparison == ":":
        if value == "*":
            return lambda queue: _found(queue, parts) is not None
        if isinstance(wanted, str) and field is not None and field.enum_type is None:
            return lambda queue: wanted.lower() in str(_found(queue, parts) or "").lower()
        comparison = "="
    compare = _COMPARISONS[comparison]

    def accepts(queue: Any) -> bool:
        found = _found(queue, parts)
        return compare(found, wanted) if found is not None else comparison == "!="

    return accepts


def _wanted(field: Any, value: str) -> float | str:
    text = _unquoted(value)
    if field.enum_type is not None:
        if text.upper() not in field.enum_type.values_by_name:
            raise _invalid(f"{text!r} is not a {field.name} of a queue")
        return text.upper()
    if value == "*" or field.type == field.TYPE_STRING:
        return text
    if field.message_type is not None:
        return to_seconds(field.message_type.full_name, text)
    try:
        number = float(text)
    except ValueError as error:
        raise _invalid(f"{text!r} is not a number") from error
    if math.isnan(number):
        raise _invalid("NaN cannot be compared with")
    return number


def _found(message: Any, parts: list[str]) -> float | str | None:
    """The queue's value in a form that compares with what is wanted; none: it is not set."""
    field: Any = None
    for part in parts:
        field = message.DESCRIPTOR.fields_by_name[part]
        if field.is_repeated or (field.message_type is not None and not message.HasField(part)):
            return None
        message = getattr(message, part)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(message)
        return known.name if known else None
    if field.message_type is None:
        return message if isinstance(message, str) else float(message)
    if field.message_type.full_name in ("google.protobuf.Timestamp", "google.protobuf.Duration"):
        return float(message.seconds + message.nanos / 1e9)
    return 0.0


def _unquoted(word: str) -> str:
    return re.sub(r"\\(.)", r"\1", word[1:-1]) if word.startswith('"') else word


def _invalid(why: str) -> InvalidArgument:
    return InvalidArgument(f"ListQueuesRequest.filter is invalid: {why[:200]}.")
