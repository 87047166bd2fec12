"""Which documents of a query are nearest to a vector, and how far away they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from localcloud.firestore.errors import InvalidArgument
from localcloud.firestore.paths import NAME, FieldPath, parse_field_path
from localcloud.firestore.pb import Message, Value
from localcloud.firestore.values import assign, is_vector, lookup

Measure: TypeAlias = Literal["euclidean", "cosine", "dot product"]
_MEASURES: dict[int, Measure] = {1: "euclidean", 2: "cosine", 3: "dot product"}
_MAX_LIMIT = 1000
_MAX_DIMENSIONS = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class Nearest:
    path: FieldPath
    vector: tuple[float, ...]
    measure: Measure
    limit: int
    threshold: float | None = None
    result: FieldPath | None = None
    """The field in which a document is told its distance."""

    def among(self, documents: Sequence[Message]) -> list[Message]:
        """The nearest first; documents without a vector of as many dimensions are passed over."""
        ranked = []
        for document in documents:
            distance = self._distance(document)
            if distance is not None and self._is_near(distance):
                ranked.append((distance, document))
        ranked.sort(key=lambda item: item[0], reverse=self.measure == "dot product")
        del ranked[self.limit :]
        if self.result is not None:
            for distance, document in ranked:
                assign(document.fields, self.result, Value(double_value=distance))
        return [document for _, document in ranked]

    def _is_near(self, distance: float) -> bool:
        if self.threshold is None:
            return True
        # A dot product grows with likeness.
        return distance >= self.threshold if self.measure == "dot product" else distance <= self.threshold

    def _distance(self, document: Message) -> float | None:
        stored = lookup(document.fields, self.path)
        vector = None if stored is None else _elements(stored)
        if vector is None or len(vector) != len(self.vector):
            return None
        if self.measure == "euclidean":
            distance = math.dist(vector, self.vector)
        else:
            distance = sum(left * right for left, right in zip(vector, self.vector, strict=True))
            if self.measure == "cosine":
                length = math.hypot(*vector) * math.hypot(*self.vector)
                distance = 1 - distance / length if length else math.nan
        return None if math.isnan(distance) else distance


def parse_nearest(message: Message) -> Nearest:
    path = parse_field_path(message.vector_field.field_path)
    vector = _elements(message.query_vector)
    if path == NAME or vector is None:
        raise InvalidArgument("find_nearest needs a vector_field and a query_vector that is a vector.")
    if not 1 <= len(vector) <= _MAX_DIMENSIONS:
        raise InvalidArgument(
            f"The query_vector of find_nearest must have 1 to {_MAX_DIMENSIONS} dimensions: {len(vector)}."
        )
    measure = _MEASURES.get(message.distance_measure)
    if measure is None:
        raise InvalidArgument("find_nearest needs a distance_measure: EUCLIDEAN, COSINE or DOT_PRODUCT.")
    if not 1 <= message.limit.value <= _MAX_LIMIT:
        raise InvalidArgument(
            f"The limit of find_nearest must be a positive integer of no more than {_MAX_LIMIT}."
        )
    result = message.distance_result_field
    return Nearest(
        path=path,
        vector=vector,
        measure=measure,
        limit=message.limit.value,
        threshold=message.distance_threshold.value if message.HasField("distance_threshold") else None,
        result=parse_field_path(result) if result else None,
    )


def _elements(value: Message) -> tuple[float, ...] | None:
    if not is_vector(value):
        return None
    elements = value.map_value.fields["value"].array_value.values
    kinds = [element.WhichOneof("value_type") for element in elements]
    if not {"integer_value", "double_value"}.issuperset(kinds):
        return None
    return tuple(float(getattr(element, kind)) for element, kind in zip(elements, kinds, strict=True))
