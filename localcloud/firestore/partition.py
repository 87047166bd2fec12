"""Where a collection group is cut so that several workers can each read a part of it."""

from __future__ import annotations

from localcloud.firestore.errors import InvalidArgument
from localcloud.firestore.paths import NAME
from localcloud.firestore.pb import Message
from localcloud.firestore.query import Query
from localcloud.firestore.scan import run
from localcloud.firestore.store import Store

# The service makes no part smaller than this.
_MIN_DOCUMENTS = 128


def check_partitionable(request: Message, query: Query) -> None:
    asked = request.structured_query
    if not query.group or query.collection is None:
        raise InvalidArgument("PartitionQuery needs a query over a collection group (all_descendants).")
    if len(asked.order_by) > 1 or any(order.path != NAME or order.descending for order in query.orders):
        raise InvalidArgument("PartitionQuery needs a query that is ordered by __name__ ascending.")
    for field in ("where", "start_at", "end_at", "limit", "find_nearest"):
        if asked.HasField(field):
            raise InvalidArgument(f"PartitionQuery takes no query with {field}.")
    if asked.offset:
        raise InvalidArgument("PartitionQuery takes no query with offset.")
    if request.partition_count <= 0:
        raise InvalidArgument("partition_count must be positive.")
    if request.page_size < 0:
        raise InvalidArgument("page_size must not be negative.")


def cuts(store: Store, query: Query, count: int, at: int | None) -> list[str]:
    """The names of the documents that the parts after the first start with, in order."""
    documents, _, _ = run(store, query, at)
    parts = min(count + 1, max(1, len(documents) // _MIN_DOCUMENTS))
    return [documents[len(documents) * part // parts].name for part in range(1, parts)]
