"""Which names of gone tasks stay taken, in eighty bytes a name: a busy queue ends millions of tasks a day."""

from __future__ import annotations

from collections import deque
from datetime import datetime

_STEP = 60
"""Seconds: names are given free in lots, up to a minute before their time."""


class Tombstones:
    """It keeps hashes of 64 bits: that two of a million names share one has a chance of 1 in 10^7."""

    def __init__(self) -> None:
        self._taken: set[int] = set()
        self._lots: deque[tuple[int, list[int]]] = deque()

    def add(self, name: str, until: datetime) -> None:
        lot = int(until.timestamp()) // _STEP
        if not self._lots or self._lots[-1][0] < lot:
            self._lots.append((lot, []))
        key = hash(name)
        self._lots[-1][1].append(key)
        self._taken.add(key)

    def holds(self, name: str, now: datetime) -> bool:
        self._forget(now)
        return hash(name) in self._taken

    def __len__(self) -> int:
        return len(self._taken)

    def _forget(self, now: datetime) -> None:
        lot = int(now.timestamp()) // _STEP
        while self._lots and self._lots[0][0] <= lot:
            self._taken.difference_update(self._lots.popleft()[1])
