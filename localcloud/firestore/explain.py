"""What Firestore says of how it answered a query: the indexes it used and what it read."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from localcloud.firestore.composite import indexes_of
from localcloud.firestore.pb import ExplainMetrics, Message
from localcloud.firestore.query import Query

_SHORT = {"ASCENDING": "ASC", "DESCENDING": "DESC", "CONTAINS": "CONTAINS"}


def plan_summary(query: Query) -> Message:
    metrics = ExplainMetrics()
    name = "DESC" if query.orders[-1].descending else "ASC"
    for index in indexes_of(query):
        parts = [*(f"{path} {_SHORT[way]}" for path, way in index.fields), f"__name__ {name}"]
        if index.vector is not None:
            path, dimensions = index.vector
            parts.append(f"{path} VECTOR<{dimensions}>")
        used = metrics.plan_summary.indexes_used.add()
        used["query_scope"] = "Collection group" if query.group else "Collection"
        used["properties"] = f"({', '.join(parts)})"
    return metrics


def with_stats(
    metrics: Message, *, results: int, documents: int, entries: int, reads: int, took: float
) -> Message:
    stats = metrics.execution_stats
    stats.results_returned = results
    stats.read_operations = reads
    # A query is never told to have taken no time at all.
    stats.execution_duration.nanos = max(1000, int(took * 1_000_000) * 1000 % 1_000_000_000)
    stats.execution_duration.seconds = int(took)
    stats.debug_stats["documents_scanned"] = str(documents)
    stats.debug_stats["index_entries_scanned"] = str(entries)
    stats.debug_stats["billing_details"] = {
        "documents_billable": str(documents),
        "index_entries_billable": str(entries if not documents else 0),
        "small_ops": "0",
        "min_query_cost": "0" if documents or entries else "1",
    }
    return metrics


def stopwatch(now: Callable[[], datetime]) -> Callable[[], float]:
    began = now()
    return lambda: max(0.0, (now() - began).total_seconds())
