"""Which documents a filter lets through, and how it is cut into conjunctions that an index can answer."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Literal, TypeAlias

from localcloud.firestore.errors import InvalidArgument
from localcloud.firestore.paths import NAME, FieldPath, parse_field_path
from localcloud.firestore.pb import Message
from localcloud.firestore.values import (
    NAN_BYTES,
    NULL,
    NULL_BYTES,
    REFERENCE,
    encode,
    encode_reference,
    lookup,
)

Operator: TypeAlias = Literal["<", "<=", ">", ">=", "==", "!=", "contains", "in", "contains any", "not in"]
_OPERATORS: dict[int, Operator] = {
    1: "<",
    2: "<=",
    3: ">",
    4: ">=",
    5: "==",
    6: "!=",
    7: "contains",
    8: "in",
    9: "contains any",
    10: "not in",
}
_INEQUALITIES = {"<", "<=", ">", ">=", "!=", "not in"}
_RANGES = {"<", "<=", ">", ">="}
_WITH_LISTS = {"in", "contains any", "not in"}
_MEMBERSHIP = {"in", "contains", "contains any"}
_SPOKEN: dict[Operator, str] = {
    "<": "LESS_THAN",
    "<=": "LESS_THAN_OR_EQUAL",
    ">": "GREATER_THAN",
    ">=": "GREATER_THAN_OR_EQUAL",
    "==": "EQUAL",
    "!=": "NOT_EQUAL",
    "contains": "ARRAY_CONTAINS",
    "in": "IN",
    "contains any": "ARRAY_CONTAINS_ANY",
    "not in": "NOT_IN",
}
_MAX_IN = 30
_MAX_NOT_IN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One field against one value, or against several for the operators that take a list."""

    path: FieldPath
    operator: Operator
    operands: tuple[bytes, ...]

    @property
    def operand(self) -> bytes:
        return self.operands[0]

    @property
    def is_inequality(self) -> bool:
        return self.operator in _INEQUALITIES

    def matches(self, document: Message) -> bool:
        if self.operator in {"contains", "contains any"}:
            value = lookup(document.fields, self.path)
            if value is None or value.WhichOneof("value_type") != "array_value":
                return False
            return any(encode(element) in self.operands for element in value.array_value.values)
        encoded = encoded_field(document, self.path)
        if encoded is None:
            return False
        if self.operator in {"==", "in"}:
            return encoded in self.operands
        if self.operator in {"!=", "not in"}:
            return encoded[0] != NULL and encoded not in self.operands
        if encoded[0] != self.operand[0] or encoded == NAN_BYTES:
            return False
        if self.operator == "<":
            return encoded < self.operand
        if self.operator == "<=":
            return encoded <= self.operand
        if self.operator == ">":
            return encoded > self.operand
        return encoded >= self.operand


@dataclass(frozen=True, slots=True, kw_only=True)
class Composite:
    all_of: bool
    parts: tuple[Filter, ...]

    def matches(self, document: Message) -> bool:
        results = (part.matches(document) for part in self.parts)
        return all(results) if self.all_of else any(results)


Filter: TypeAlias = Comparison | Composite


def encoded_field(document: Message, path: FieldPath) -> bytes | None:
    if path == NAME:
        return encode_reference(document.name)
    value = lookup(document.fields, path)
    return None if value is None else encode(value)


def comparisons(where: Filter | None) -> list[Comparison]:
    if where is None:
        return []
    if isinstance(where, Comparison):
        return [where]
    return [leaf for part in where.parts for leaf in comparisons(part)]


def disjuncts(where: Filter | None) -> list[tuple[Comparison, ...]]:
    """The filter as an OR of ANDs, with every list cut into single values."""
    if where is None:
        return [()]
    if isinstance(where, Comparison):
        if where.operator in {"in", "contains any"}:
            single: Operator = "==" if where.operator == "in" else "contains"
            return [
                (Comparison(path=where.path, operator=single, operands=(operand,)),)
                for operand in dict.fromkeys(where.operands)
            ]
        return [(where,)]
    inner = [disjuncts(part) for part in where.parts]
    if where.all_of:
        return [tuple(itertools.chain(*choice)) for choice in itertools.product(*inner)]
    return list(itertools.chain(*inner))


def parse_filter(where: Message) -> Filter:
    kind = where.WhichOneof("filter_type")
    if kind == "composite_filter":
        composite = where.composite_filter
        if composite.op not in {1, 2}:
            raise InvalidArgument("A composite filter needs an operator: AND or OR.")
        if not composite.filters:
            raise InvalidArgument("Composite filter must have at least one sub-filter.")
        return Composite(all_of=composite.op == 1, parts=tuple(map(parse_filter, composite.filters)))
    if kind == "unary_filter":
        return _unary(where.unary_filter)
    if kind == "field_filter":
        return _field(where.field_filter)
    raise InvalidArgument("A filter must be a composite, field or unary filter.")


def _unary(unary: Message) -> Comparison:
    path = parse_field_path(unary.field.field_path)
    if path == NAME:
        raise InvalidArgument("__key__ filter value must be a Key")
    operator: Operator = "!=" if unary.op in {4, 5} else "=="
    if unary.op in {3, 5}:
        return Comparison(path=path, operator=operator, operands=(NULL_BYTES,))
    if unary.op in {2, 4}:
        return Comparison(path=path, operator=operator, operands=(NAN_BYTES,))
    raise InvalidArgument("A unary filter needs an operator.")


def _field(field: Message) -> Comparison:
    path = parse_field_path(field.field.field_path)
    operator = _OPERATORS.get(field.op)
    if operator is None:
        raise InvalidArgument("A field filter needs an operator.")
    spoken = _SPOKEN[operator]
    if path == NAME and operator in {"contains", "contains any"}:
        raise InvalidArgument("the name __key__ is reserved")
    if operator in _WITH_LISTS:
        if field.value.WhichOneof("value_type") != "array_value" or not field.value.array_value.values:
            raise InvalidArgument(f"'{spoken}' requires an non-empty ArrayValue.")
        operands = tuple(encode(value) for value in field.value.array_value.values)
        most = _MAX_NOT_IN if operator == "not in" else _MAX_IN
        if len(operands) > most:
            raise InvalidArgument(f"'{spoken}' supports up to {most} comparison values.")
    else:
        operands = (encode(field.value),)
    if path == NAME and any(operand[0] != REFERENCE for operand in operands):
        raise InvalidArgument("__key__ filter value must be a Key")
    if (operator == "not in" and NULL_BYTES in operands) or (operator in _RANGES and NAN_BYTES in operands):
        # Comparing with null or NaN is never true, so nothing is "not in" a list with null, or below NaN.
        return Comparison(path=path, operator="in", operands=())
    if operator in _MEMBERSHIP:
        # Null and NaN equal nothing, themselves included: only the unary filters find them.
        operands = tuple(operand for operand in operands if operand not in {NULL_BYTES, NAN_BYTES})
        if operator == "contains" and not operands:
            return Comparison(path=path, operator="contains any", operands=())
    return Comparison(path=path, operator=operator, operands=operands)
