"""Who may touch a document now: shared and exclusive locks, waited for in turn, with deadlocks found at once.

Readers share; one that wants to write waits until it is alone. Whoever waits is in a graph of who waits for
whom; a wait that closes a ring ends one of its members with ABORTED, a committing transaction rather than a
reading one because client libraries retry the former only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeAlias

from localcloud.firestore.errors import Aborted
from shared.clock import Clock

Key: TypeAlias = tuple[str, bytes]
CONTENTION = (
    "Aborted due to cross-transaction contention. This occurs when multiple transactions attempt to access"
)


@dataclass(slots=True, kw_only=True, eq=False)
class Owner:
    """Whoever can hold locks: a transaction, or a single commit."""

    age: int
    """The smaller, the older; a retried transaction keeps the age of its first attempt."""
    is_transaction: bool
    committing: bool = False
    held: set[Key] = field(default_factory=set)


@dataclass(slots=True, kw_only=True, eq=False)
class _Waiter:
    owner: Owner
    exclusive: bool
    lock: _Lock | None
    others: frozenset[Owner]
    granted: asyncio.Future[None]

    def blockers(self) -> set[Owner]:
        if self.lock is None:
            return set(self.others)
        blocking = self.lock.conflicts(self.owner, exclusive=self.exclusive)
        for earlier in self.lock.queue:
            if earlier is self:
                break
            if earlier.owner is not self.owner and (earlier.exclusive or self.exclusive):
                blocking.add(earlier.owner)
        return blocking


@dataclass(slots=True, eq=False)
class _Lock:
    shared: set[Owner] = field(default_factory=set)
    exclusive: Owner | None = None
    queue: list[_Waiter] = field(default_factory=list)

    def conflicts(self, owner: Owner, *, exclusive: bool) -> set[Owner]:
        found = set(self.shared) if exclusive else set()
        if self.exclusive is not None:
            found.add(self.exclusive)
        found.discard(owner)
        return found

    def take(self, owner: Owner, *, exclusive: bool) -> None:
        if exclusive:
            self.shared.discard(owner)
            self.exclusive = owner
        elif self.exclusive is not owner:
            self.shared.add(owner)


class Locks:
    def __init__(self, *, clock: Clock, wait_seconds: float, expire: Callable[[], datetime | None]) -> None:
        self._clock = clock
        self._wait = timedelta(seconds=wait_seconds)
        self._expire = expire
        """Ends overdue transactions, and says when the next one will be."""
        self._locks: dict[Key, _Lock] = {}
        self._waiters: dict[Owner, set[_Waiter]] = {}

    def are_free(self, keys: Iterable[Key]) -> bool:
        """Whether nobody holds or awaits any of the locks."""
        return self._locks.keys().isdisjoint(keys)

    async def acquire(self, owner: Owner, keys: Iterable[Key], *, exclusive: bool) -> None:
        """Takes all the locks, waiting for them one after the other in the order of their keys."""
        for key in sorted(set(keys)):
            lock = self._locks.setdefault(key, _Lock())
            if lock.exclusive is owner or (not exclusive and owner in lock.shared):
                continue
            waiter = self._waiter(owner, lock=lock, exclusive=exclusive)
            # Whoever holds the lock already and wants more goes first: nobody behind could be let in anyway.
            place = 0 if owner in lock.shared else len(lock.queue)
            lock.queue.insert(place, waiter)
            self._grant(lock)
            try:
                await self._until_granted(waiter)
            finally:
                if waiter in lock.queue:
                    lock.queue.remove(waiter)
                    self._grant(lock)
                if (
                    waiter.granted.done()
                    and not waiter.granted.cancelled()
                    and not waiter.granted.exception()
                ):
                    owner.held.add(key)
                elif not (lock.shared or lock.exclusive or lock.queue):
                    self._locks.pop(key, None)

    async def wait_for(self, owner: Owner, others: Iterable[Owner]) -> None:
        """Waits until one of the others has let go of everything."""
        await self._until_granted(self._waiter(owner, lock=None, exclusive=True, others=frozenset(others)))

    def release(self, owner: Owner) -> None:
        for key in owner.held:
            lock = self._locks[key]
            lock.shared.discard(owner)
            if lock.exclusive is owner:
                lock.exclusive = None
            self._grant(lock)
            if not (lock.shared or lock.exclusive or lock.queue):
                del self._locks[key]
        owner.held.clear()
        for waiters in self._waiters.values():
            for waiter in waiters:
                if owner in waiter.others and not waiter.granted.done():
                    waiter.granted.set_result(None)

    def fail(self, owner: Owner, reason: str) -> None:
        """Ends whatever the owner is waiting for."""
        for waiter in list(self._waiters.get(owner, ())):
            if not waiter.granted.done():
                waiter.granted.set_exception(Aborted(reason))

    def _waiter(
        self, owner: Owner, *, lock: _Lock | None, exclusive: bool, others: frozenset[Owner] = frozenset()
    ) -> _Waiter:
        granted = asyncio.get_running_loop().create_future()
        return _Waiter(owner=owner, exclusive=exclusive, lock=lock, others=others, granted=granted)

    def _grant(self, lock: _Lock) -> None:
        for waiter in list(lock.queue):
            if waiter.granted.done():
                lock.queue.remove(waiter)
                continue
            if lock.conflicts(waiter.owner, exclusive=waiter.exclusive):
                return
            lock.take(waiter.owner, exclusive=waiter.exclusive)
            lock.queue.remove(waiter)
            waiter.granted.set_result(None)

    async def _until_granted(self, waiter: _Waiter) -> None:
        if waiter.granted.done():
            return await waiter.granted
        deadline = self._clock.now() + self._wait
        self._waiters.setdefault(waiter.owner, set()).add(waiter)
        try:
            self._break_ring(waiter)
            while not waiter.granted.done():
                overdue = self._expire()
                now = self._clock.now()
                if waiter.granted.done():
                    break
                if now >= deadline:
                    raise Aborted(f"{CONTENTION} the same data: the wait for a lock took too long.")
                wake = min(deadline, overdue) if overdue is not None else deadline
                nap = asyncio.ensure_future(self._clock.sleep((wake - now).total_seconds()))
                try:
                    await asyncio.wait({waiter.granted, nap}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    nap.cancel()
            return await waiter.granted
        finally:
            remaining = self._waiters[waiter.owner]
            remaining.discard(waiter)
            if not remaining:
                del self._waiters[waiter.owner]

    def _break_ring(self, newest: _Waiter) -> None:
        while not newest.granted.done():
            ring = self._ring(newest)
            if ring is None:
                return
            victim = max(ring, key=lambda owner: (owner.is_transaction, owner.committing, owner.age))
            self.fail(victim, f"{CONTENTION} the same data: deadlock.")

    def _ring(self, newest: _Waiter) -> list[Owner] | None:
        """The owners of a ring of waits through the newest one."""
        seen: set[Owner] = set()

        def search(owner: Owner, trail: list[Owner]) -> list[Owner] | None:
            if owner is newest.owner:
                return trail
            if owner in seen:
                return None
            seen.add(owner)
            for waiter in self._waiters.get(owner, ()):
                if waiter.granted.done():
                    continue
                for blocker in waiter.blockers():
                    ring = search(blocker, [*trail, owner])
                    if ring is not None:
                        return ring
            return None

        for blocker in newest.blockers():
            ring = search(blocker, [newest.owner])
            if ring is not None:
                return ring
        return None
