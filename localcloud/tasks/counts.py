"""How much the service was used: what Google would bill, for benchmarks and tests."""

from __future__ import annotations

from collections import Counter


class Counts:
    def __init__(self) -> None:
        self._calls: Counter[str] = Counter()
        self._dispatches: Counter[str] = Counter()

    def called(self, rpc: str) -> None:
        self._calls[rpc] += 1

    def dispatched(self, queue_id: str) -> None:
        self._dispatches[queue_id] += 1

    def snapshot(self) -> dict[str, dict[str, int]]:
        """`calls` per RPC name and `dispatches` per queue id, since the start or the last reset."""
        return {"calls": dict(self._calls), "dispatches": dict(self._dispatches)}

    def reset(self) -> None:
        self._calls.clear()
        self._dispatches.clear()
