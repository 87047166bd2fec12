"""Which queries Firestore refuses, in the words it refuses them with."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from localcloud.firestore.errors import InvalidArgument
from localcloud.firestore.filters import Comparison, Filter, comparisons, disjuncts
from localcloud.firestore.paths import NAME, FieldPath, quote_field_path

MAX_DISJUNCTIONS = 30
_MAX_INEQUALITY_FIELDS = 10


def check_filter(where: Filter | None) -> None:
    leaves = comparisons(where)
    negations = [leaf for leaf in leaves if leaf.operator in {"!=", "not in"}]
    if len(negations) > 1:
        raise InvalidArgument(
            "Only a single 'NOT_EQUAL', 'NOT_IN', 'IS_NOT_NAN', or 'IS_NOT_NULL' filter allowed per query."
        )
    operators = {leaf.operator for leaf in leaves}
    if "not in" in operators and operators & {"in", "contains any"}:
        raise InvalidArgument(
            "'NOT_IN' cannot be used in the same query with 'IN', 'ARRAY_CONTAINS_ANY' or 'OR'."
        )
    unequal = sorted({quote_field_path(leaf.path) for leaf in leaves if leaf.is_inequality})
    if len(unequal) > _MAX_INEQUALITY_FIELDS:
        raise InvalidArgument(
            f"The query contains {len(unequal)} distinct inequality fields: [{', '.join(unequal)}]. A query"
            f" may not have more than {_MAX_INEQUALITY_FIELDS} distinct inequality fields."
        )
    # Counted before they are written out: ten INs of thirty values would be 30^10 conjunctions.
    number = _disjunctions(where)
    if number > MAX_DISJUNCTIONS:
        raise InvalidArgument(
            f"Too many disjunctions after normalization: {number} (maximum is {MAX_DISJUNCTIONS})."
        )
    for conjunction in disjuncts(where):
        if sum(leaf.operator == "contains" for leaf in conjunction) > 1:
            raise InvalidArgument("A maximum of 1 'ARRAY_CONTAINS' filter is allowed per disjunction.")


def check_below(where: Filter | None, orders: Iterable[tuple[FieldPath, bool]]) -> None:
    """What a collection group below a document may not be asked for: there is no index but that of names."""
    if any(leaf.path != NAME for leaf in comparisons(where)) or any(path != NAME for path, _ in orders):
        raise InvalidArgument("collection group queries are only allowed at the root parent")


def check_kind(where: Filter | None, orders: Iterable[tuple[FieldPath, bool]]) -> None:
    """What a query without a collection id may not ask for."""
    for leaf in comparisons(where):
        if leaf.path != NAME:
            raise InvalidArgument(f"kind is required for filter: {quote_field_path(leaf.path)}")
    if any(path != NAME or descending for path, descending in orders):
        raise InvalidArgument("kind is required for all orders except __key__ ascending")


def check_orders(paths: Sequence[FieldPath]) -> None:
    for place, path in enumerate(paths):
        if path in paths[:place]:
            raise InvalidArgument(f"order by clause cannot contain duplicate fields {quote_field_path(path)}")
        if NAME in paths[:place]:
            raise InvalidArgument(
                f"order by clause cannot contain more fields after the key {quote_field_path(path)}"
            )


def _disjunctions(where: Filter | None) -> int:
    if where is None:
        return 1
    if isinstance(where, Comparison):
        return len(set(where.operands)) if where.operator in {"in", "contains any"} else 1
    return (
        math.prod(map(_disjunctions, where.parts)) if where.all_of else sum(map(_disjunctions, where.parts))
    )
