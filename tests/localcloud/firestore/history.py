"""Whether a history of transactions could have happened one after the other.

Each transaction is a node. It comes after whoever wrote what it read, after whoever wrote before it what it
wrote, and before whoever overwrote what it read. If these arrows make a ring, no serial order explains them.
The order of the versions of a document is that of the commit times of their writers.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

INITIAL = "initial"


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A transaction that was committed."""

    name: str
    time: int
    reads: Mapping[str, str]
    """For each document, the transaction that wrote the version that was read; absence is a version too."""
    writes: frozenset[str]


def ring(history: Sequence[Done]) -> list[str] | None:
    """Names of transactions that each have to come before the next, round and round; none if it is serial."""
    versions: dict[str, list[str]] = {}
    for done in sorted(history, key=lambda item: item.time):
        for document in done.writes:
            versions.setdefault(document, [INITIAL]).append(done.name)
    before: dict[str, set[str]] = {done.name: set() for done in history}
    for done in history:
        for document, writer in done.reads.items():
            order = versions.get(document, [INITIAL])
            if writer not in order:
                return [done.name, writer]
            if writer != INITIAL:
                before[writer].add(done.name)
            for later in order[order.index(writer) + 1 :][:1]:
                before[done.name].add(later)
    for order in versions.values():
        for earlier, later in itertools.pairwise(order[1:]):
            before[earlier].add(later)
    for name, others in before.items():
        others.discard(name)
    return _cycle(before)


def _cycle(before: Mapping[str, set[str]]) -> list[str] | None:
    finished: set[str] = set()
    for start in before:
        trail: list[str] = []
        pending = [(start, iter(sorted(before[start])))] if start not in finished else []
        trail = [start] if pending else []
        while pending:
            name, rest = pending[-1]
            following = next(rest, None)
            if following is None:
                finished.add(name)
                pending.pop()
                trail.pop()
            elif following in trail:
                return trail[trail.index(following) :]
            elif following not in finished:
                trail.append(following)
                pending.append((following, iter(sorted(before[following]))))
    return None
