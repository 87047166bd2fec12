"""Concurrent random transactions leave a history that has a serial order; a broken engine is caught at it."""

from __future__ import annotations

import asyncio
import importlib.util
import random
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud.firestore_v1 import AsyncClient, AsyncTransaction, FieldFilter, async_transactional

from localcloud.firestore import RunningFirestore
from localcloud.firestore.engine import Engine
from localcloud.firestore.scan import run

_SPEC = importlib.util.spec_from_file_location("history", Path(__file__).with_name("history.py"))
assert _SPEC is not None and _SPEC.loader is not None
_HISTORY = importlib.util.module_from_spec(_SPEC)
sys.modules.setdefault("history", _HISTORY)
_SPEC.loader.exec_module(_HISTORY)
Done, INITIAL, ring = _HISTORY.Done, _HISTORY.INITIAL, _HISTORY.ring

Start = Callable[..., Awaitable[RunningFirestore]]
Connect = Callable[[int], AsyncClient]
NAMES = [f"d{number}" for number in range(6)]
LOCKINGS = pytest.mark.parametrize("locking", ["pessimistic", "optimistic"])


def done(name: str, time: int, reads: dict[str, str], *writes: str) -> Any:
    return Done(name=name, time=time, reads=reads, writes=frozenset(writes))


def test_the_checker_accepts_a_serial_history() -> None:
    assert ring([done("a", 1, {"x": INITIAL}, "x"), done("b", 2, {"x": "a"}, "x")]) is None


def test_the_checker_finds_a_lost_update() -> None:
    assert ring([done("a", 1, {"x": INITIAL}, "x"), done("b", 2, {"x": INITIAL}, "x")])


def test_the_checker_finds_write_skew() -> None:
    skew = [
        done("a", 1, {"x": INITIAL, "y": INITIAL}, "x"),
        done("b", 2, {"x": INITIAL, "y": INITIAL}, "y"),
    ]
    assert ring(skew)


def test_the_checker_finds_a_read_of_what_was_never_committed() -> None:
    assert ring([done("a", 1, {"x": "nobody"})])


def test_the_checker_finds_a_torn_snapshot() -> None:
    writer = done("w", 1, {}, "x", "y")
    assert ring([writer, done("r", 2, {"x": "w", "y": INITIAL})])


def micros(moment: Any) -> int:
    return int(moment.timestamp()) * 1_000_000 + int(moment.microsecond)


@dataclass(kw_only=True)
class Played:
    """A transaction as its client saw it."""

    name: str
    writes: dict[str, bool]
    """What it wrote, and whether it kept the document (or deleted it)."""
    time: int = 0
    seen: dict[str, tuple[str | None, int]] = field(default_factory=dict)
    """Who wrote each document that was read (none: it wasn't there), and when it was read."""


async def play(
    db: AsyncClient, seed: int, *, transactions: int = 40, queries: float = 0.4, kept: float = 0.8
) -> list[Any]:
    """Runs random transactions at once: reads by name and by query, sets and deletes, some read-only."""
    chance = random.Random(seed)
    things = db.collection("things")
    # Every query finds it, so every query tells when it read.
    await things.document("anchor").set({"by": INITIAL, "live": True})

    async def one(number: int) -> Played:
        read_only = chance.random() < 0.15
        reads = chance.sample(NAMES, chance.randint(0, 3)) if queries < 1 else []
        chosen = {} if read_only else {name: chance.random() < kept for name in chance.sample(NAMES, 2)}
        played = Played(name=f"{seed}-{number}", writes=chosen)
        by_query = chance.random() < queries
        used: list[AsyncTransaction] = []

        async def body(transaction: AsyncTransaction) -> None:
            used.append(transaction)
            played.seen.clear()
            for name in reads:
                snapshot = await things.document(name).get(transaction=transaction)
                writer = snapshot.get("by") if snapshot.exists else None
                played.seen[name] = (writer, micros(snapshot.read_time))
            if by_query:
                query = things.where(filter=FieldFilter("live", "==", True))
                found = [item async for item in query.stream(transaction=transaction)]
                at = micros(found[0].read_time)
                writers = {item.id: item.get("by") for item in found}
                for name in NAMES:
                    played.seen.setdefault(name, (writers.get(name), at))
            for name, keep in played.writes.items():
                if keep:
                    transaction.set(things.document(name), {"by": played.name, "live": True})
                else:
                    transaction.delete(things.document(name))

        for attempt in range(200):
            try:
                await async_transactional(body)(db.transaction(max_attempts=5, read_only=read_only))
                played.time = micros(used[-1].commit_time)
                return played
            except exceptions.Aborted:
                pass
            except ValueError as error:
                if not isinstance(error.__cause__, exceptions.Aborted):
                    raise
            await asyncio.sleep(chance.uniform(0, min(0.1, 0.004 * 2**attempt)))
        raise AssertionError("never got through")

    return resolved(await asyncio.gather(*(one(number) for number in range(transactions))))


def resolved(history: list[Played]) -> list[Any]:
    """Gives an absence its writer: whoever deleted the document last, or nobody.

    Absences are all alike: to delete what isn't there is no new version, and who found nothing and finds
    nothing again when it commits has missed nothing, whatever there was in between.
    """
    versions: dict[str, list[tuple[int, str, bool]]] = {name: [] for name in NAMES}
    for played in sorted(history, key=lambda item: item.time):
        for name, keep in list(played.writes.items()):
            if keep or (versions[name] and versions[name][-1][2]):
                versions[name].append((played.time, played.name, keep))
            else:
                del played.writes[name]

    def writer(played: Played, name: str) -> str:
        seen, at = played.seen[name]
        if seen is not None:
            return seen
        before = [version for version in versions[name] if version[0] < played.time]
        if not played.writes or (before and before[-1][2]):
            before = [version for version in before if version[0] <= at]
        return before[-1][1] if before else INITIAL

    return [
        Done(
            name=played.name,
            time=played.time,
            reads={name: writer(played, name) for name in played.seen},
            writes=frozenset(played.writes),
        )
        for played in history
    ]


@LOCKINGS
@pytest.mark.parametrize("seed", [1, 2])
async def test_random_histories_have_a_serial_order(
    start: Start, connect: Connect, locking: str, seed: int
) -> None:
    db = connect((await start(locking=locking)).port)
    assert ring(await play(db, seed)) is None


async def found_out(
    start: Start, connect: Connect, locking: str = "pessimistic", **play_options: Any
) -> bool:
    for seed in range(8):
        db = connect((await start(locking=locking)).port)
        if ring(await play(db, seed, **play_options)) is not None:
            return True
    return False


async def test_an_engine_without_read_locks_is_caught(
    start: Start, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_lock(*_: object) -> None: ...

    async def query_without_locks(engine: Any, query: Any, read: Any) -> Any:
        documents, skipped, _ = run(engine.store, query)
        return documents, skipped, engine.now()

    monkeypatch.setattr(Engine, "_lock_for_reading", no_lock)
    monkeypatch.setattr(Engine, "_query", query_without_locks)
    assert await found_out(start, connect)


async def test_an_engine_that_never_validates_is_caught(
    start: Start, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Engine, "_check_unchanged", lambda *_: None)
    assert await found_out(start, connect, locking="optimistic")


async def test_an_engine_that_lets_phantoms_in_is_caught(
    start: Start, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Engine, "_readers_of", lambda *_: [])
    assert await found_out(start, connect, transactions=20, queries=1, kept=0.4)
