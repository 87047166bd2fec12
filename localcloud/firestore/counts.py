"""What the work would cost: RPCs by method; reads, writes and deletes per collection as Google bills them."""

from __future__ import annotations

from collections import Counter


class Counts:
    def __init__(self) -> None:
        self._kinds: dict[str, Counter[str]] = {
            kind: Counter() for kind in ("rpcs", "reads", "writes", "deletes", "index_entries")
        }

    def rpc(self, method: str) -> None:
        self._kinds["rpcs"][method] += 1

    def read(self, collection: str, documents: int = 1) -> None:
        self._kinds["reads"][collection] += documents

    def query(self, collection: str, documents: int) -> None:
        """A query without an answer is billed as one read."""
        self.read(collection, max(1, documents))

    def aggregation(self, collection: str, entries: int) -> None:
        """A thousand index entries are billed as one read, and any aggregation as at least one."""
        self._kinds["index_entries"][collection] += entries
        self.read(collection, max(1, -(-entries // 1000)))

    def write(self, collection: str, *, delete: bool) -> None:
        self._kinds["deletes" if delete else "writes"][collection] += 1

    def snapshot(self) -> dict[str, dict[str, int]]:
        return {kind: dict(sorted(counter.items())) for kind, counter in self._kinds.items()}

    def reset(self) -> None:
        for counter in self._kinds.values():
            counter.clear()
