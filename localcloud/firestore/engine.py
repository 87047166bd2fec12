"""The database: what each operation does, with its transactions and its time, and no knowledge of any wire.

Nothing is awaited between deciding about a commit and storing it, so a commit is one step to everybody else;
the only waits are for locks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from weakref import WeakSet

from localcloud.firestore.aggregate import Aggregated, Aggregation, aggregate, over_the_fields
from localcloud.firestore.changes import Change, Committed, Listener, Read
from localcloud.firestore.composite import Index, indexes_of, write_indexes
from localcloud.firestore.counts import Counts
from localcloud.firestore.errors import Aborted, FailedPrecondition, FirestoreError, InvalidArgument
from localcloud.firestore.locks import CONTENTION, Key, Locks, Owner
from localcloud.firestore.paths import DocumentName, parse_name
from localcloud.firestore.pb import Document, Message
from localcloud.firestore.query import Query
from localcloud.firestore.scan import run
from localcloud.firestore.store import Store, version
from localcloud.firestore.transactions import Locking, Mode, QueryRead, Transaction, Transactions
from localcloud.firestore.writes import apply_write, target
from shared.clock import Clock

_HISTORY_SECONDS = 3600


class Engine:
    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        counts: Counts,
        locking: Locking = "pessimistic",
        lock_seconds: float = 20,
        idle_seconds: float = 60,
        transaction_seconds: float = 270,
        notes: Path | None = None,
    ) -> None:
        """`notes` is the directory where the composite indexes that queries need are written down."""
        self._store = store
        self._clock = clock
        self._counts = counts
        self._locking: Locking = locking
        self._last = store.last_commit()
        self._listeners: list[Listener] = []
        self._cleared: dict[str, int] = {}
        self._notes = notes
        self._needed: dict[Index, None] = {}
        self._noted: WeakSet[Query] = WeakSet()
        self._transactions = Transactions(
            clock=clock,
            idle_seconds=idle_seconds,
            total_seconds=transaction_seconds,
            ended=self._transaction_ended,
        )
        self._locks = Locks(clock=clock, wait_seconds=lock_seconds, expire=self._transactions.expire)

    @property
    def store(self) -> Store:
        return self._store

    @property
    def counts(self) -> Counts:
        return self._counts

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def unlisten(self, listener: Listener) -> None:
        self._listeners.remove(listener)

    def clear(self, database: str) -> None:
        """Forgets everything in a database, and ends its transactions."""
        self._transactions.end_all(database)
        at = max(self._micros(), self._last + 1)
        self._store.clear(database, at)
        self._last = self._cleared[database] = at
        for listener in list(self._listeners):
            listener.cleared(database, at)

    def begin(
        self,
        database: str,
        *,
        read_only: bool = False,
        at: int | None = None,
        locking: Locking | None = None,
        retry: bytes = b"",
    ) -> Transaction:
        mode: Mode = "read_only" if read_only else (locking or self._locking)
        snapshot = None
        if read_only:
            snapshot = self._checked_time(at) if at is not None else self.now()
        return self._transactions.begin(database, mode, snapshot=snapshot, retry=retry)

    def transaction(self, number: bytes, database: str) -> Transaction:
        return self._transactions.use(number, database)

    def rollback(self, number: bytes, database: str) -> None:
        if self._transactions.was_known(number):
            return
        self._transactions.end(self._transactions.use(number, database))

    async def get(self, names: Sequence[DocumentName], read: Read) -> tuple[list[bytes | None], int]:
        """The bodies in the order of the names, and the time they were read at."""
        transaction = read.transaction
        if transaction is not None and transaction.mode == "pessimistic":
            await self._lock_for_reading(transaction, names)
        at, read_time = self._read_at(read)
        bodies = [self._store.get(name, at) for name in names]
        for name, body in zip(names, bodies, strict=True):
            self._counts.read(name.collection)
            if transaction is not None and transaction.mode != "read_only":
                document = None if body is None else Document.FromString(body)
                transaction.documents.setdefault((name.database, name.key), (name, version(document)))
        return bodies, read_time

    async def run_query(self, query: Query, read: Read) -> tuple[list[Message], int, int]:
        """The documents, how many the offset skipped, and the time they were read at."""
        documents, skipped, read_time = await self._query(query, read)
        self._note_indexes(query)
        self._counts.query(query.collection or "*", len(documents) + skipped)
        return documents, skipped, read_time

    async def run_aggregation(
        self, query: Query, aggregations: tuple[Aggregation, ...], read: Read
    ) -> tuple[Aggregated, int]:
        if read.transaction is not None and read.transaction.mode != "read_only":
            await self._query(query, read)
        at, read_time = self._read_at(read)
        self._note_indexes(over_the_fields(query, aggregations))
        result = aggregate(self._store, query, aggregations, at)
        self._counts.aggregation(query.collection or "*", result.entries)
        return result, read_time

    def needed_indexes(self) -> list[Index]:
        """The composite indexes that production would need for the queries run so far."""
        return list(self._needed)

    def _note_indexes(self, query: Query) -> None:
        if query in self._noted:
            return
        self._noted.add(query)
        for index in indexes_of(query):
            if not index.is_automatic and (index.fields or index.vector) and index not in self._needed:
                self._needed[index] = None
                if self._notes is not None:
                    write_indexes(self._notes, self._needed)

    async def _query(self, query: Query, read: Read) -> tuple[list[Message], int, int]:
        """Runs a query; a transaction that locks waits for whoever is about to write to what it found."""
        transaction = read.transaction
        while True:
            at, read_time = self._read_at(read)
            documents, skipped, boundary = run(self._store, query, at)
            if transaction is None or transaction.mode == "read_only":
                return documents, skipped, read_time
            if transaction.mode == "pessimistic":
                names = [parse_name(document.name) for document in documents]
                keys = {(name.database, name.key) for name in names}
                if not keys <= transaction.owner.held:
                    await self._lock_for_reading(transaction, names)
                    continue
            transaction.queries.append(
                QueryRead(query=query, boundary=boundary, versions=_versions(documents))
            )
            return documents, skipped, read_time

    async def commit(
        self, database: str, writes: Sequence[Message], transaction: Transaction | None = None
    ) -> Committed:
        if transaction is None:
            at_once = self._commit_at_once(database, writes)
            if at_once is not None:
                return at_once
            owner = self._transactions.single_commit()
            try:
                return await self._commit(database, writes, owner, None)
            finally:
                self._locks.release(owner)
        if transaction.mode == "read_only" and writes:
            raise InvalidArgument("Cannot modify entities in a read-only transaction.")
        transaction.owner.committing = True
        aborted = False
        try:
            return await self._commit(database, writes, transaction.owner, transaction)
        except Aborted:
            aborted = True
            raise
        finally:
            self._transactions.end(transaction, aborted=aborted)

    async def batch_write(self, database: str, writes: Sequence[Message]) -> list[Message | FirestoreError]:
        """Each write for itself: its result, or why it failed."""
        names = [target(write) for write in writes]
        if len(set(names)) != len(names):
            raise InvalidArgument("A BatchWrite must not write to the same document more than once.")
        answers: list[Message | FirestoreError] = []
        for write in writes:
            try:
                answers.append((await self.commit(database, [write])).results[0])
            except FirestoreError as error:
                answers.append(error)
        return answers

    async def _commit(
        self, database: str, writes: Sequence[Message], owner: Owner, transaction: Transaction | None
    ) -> Committed:
        names = _targets(database, writes)
        keys: frozenset[Key] = frozenset((name.database, name.key) for name in names)
        if transaction is not None:
            transaction.wanted = keys
        while True:
            await self._locks.acquire(owner, keys, exclusive=True)
            if transaction is not None:
                if not self._transactions.is_open(transaction):
                    raise Aborted("The transaction expired while it waited for a lock.")
                if writes:
                    self._check_unchanged(transaction)
            at = max(self._micros(), self._last + 1)
            results, changes = self._decide(writes, names, at)
            blockers = self._readers_of(changes, owner, database)
            if not blockers:
                return self._store_all(database, writes, at, results, changes)
            await self._locks.wait_for(owner, blockers)

    def _commit_at_once(self, database: str, writes: Sequence[Message]) -> Committed | None:
        """Commits what nobody else holds, awaits or has found; nothing if somebody does.

        That needs no lock: nothing is awaited in here.
        """
        names = _targets(database, writes)
        if not self._locks.are_free([(name.database, name.key) for name in names]):
            return None
        at = max(self._micros(), self._last + 1)
        results, changes = self._decide(writes, names, at)
        if self._readers_of(changes, None, database):
            return None
        return self._store_all(database, writes, at, results, changes)

    def _store_all(
        self,
        database: str,
        writes: Sequence[Message],
        at: int,
        results: list[Message],
        changes: Sequence[Change],
    ) -> Committed:
        with self._store.commit(at):
            for change in changes:
                if change.new is not None:
                    self._store.put(change.name, change.old, change.new, at)
                elif change.old is not None:
                    self._store.remove(change.name, change.old, at)
        self._last = at
        if changes:
            for listener in list(self._listeners):
                listener.committed(database, at, changes)
        for write in writes:
            self._counts.write(target(write).collection, delete=write.WhichOneof("operation") == "delete")
        return Committed(time=at, results=results)

    def _decide(
        self, writes: Sequence[Message], names: Sequence[DocumentName], at: int
    ) -> tuple[list[Message], list[Change]]:
        """What the writes would do, one after the other; raises if one of them may not."""
        stored: dict[DocumentName, Message | None] = {}
        current: dict[DocumentName, Message | None] = {}
        results: list[Message] = []
        for write, name in zip(writes, names, strict=True):
            if name not in stored:
                body = self._store.get(name)
                stored[name] = current[name] = None if body is None else Document.FromString(body)
            outcome = apply_write(write, name, current[name], at)
            current[name] = outcome.document
            results.append(outcome.result)
        changes = [
            Change(name=name, old=old, new=current[name])
            for name, old in stored.items()
            if current[name] is not old
        ]
        return results, changes

    def _readers_of(self, changes: Sequence[Change], owner: Owner | None, database: str) -> list[Owner]:
        """Open transactions whose queries have seen, or would now see, what is being changed."""
        return [
            other.owner
            for other in self._transactions.others(owner, database)
            if any(
                read.sees(change.name, change.old) or read.sees(change.name, change.new)
                for read in other.queries
                for change in changes
            )
        ]

    async def _lock_for_reading(self, transaction: Transaction, names: Sequence[DocumentName]) -> None:
        keys = {(name.database, name.key) for name in names}
        try:
            await self._locks.acquire(transaction.owner, keys & transaction.contested, exclusive=True)
            await self._locks.acquire(transaction.owner, keys - transaction.contested, exclusive=False)
        except Aborted:
            self._transactions.end(transaction, aborted=True)
            raise
        if not self._transactions.is_open(transaction):
            self._locks.release(transaction.owner)
            raise Aborted("The transaction expired while it waited for a lock.")

    def _check_unchanged(self, transaction: Transaction) -> None:
        """An optimistic transaction may commit only if everything it read is still so."""
        if transaction.mode != "optimistic":
            return
        for name, seen in transaction.documents.values():
            body = self._store.get(name)
            if version(None if body is None else Document.FromString(body)) != seen:
                raise Aborted(f"{CONTENTION} the same data: {name} has changed.")
        for read in transaction.queries:
            documents, _, _ = run(self._store, replace(read.query, projection=None))
            if _versions(documents) != read.versions:
                raise Aborted(f"{CONTENTION} the same data: the answer of a query has changed.")

    def past(self, read: Read) -> int | None:
        """The time to read at if what is there now won't do."""
        at, _ = self._read_at(read)
        return at

    def _read_at(self, read: Read) -> tuple[int | None, int]:
        """The past time to read at, if it is one, and the time to tell the reader."""
        transaction = read.transaction
        if transaction is not None and transaction.mode != "pessimistic":
            if transaction.snapshot is None:
                transaction.snapshot = self.now()
            return transaction.snapshot, transaction.snapshot
        if read.at is not None:
            at = self._checked_time(read.at)
            return at, at
        return None, self.now()

    def _checked_time(self, at: int) -> int:
        now = self.now()
        if at > now:
            raise InvalidArgument("read_time must not be in the future.")
        if at < now - _HISTORY_SECONDS * 1_000_000:
            raise FailedPrecondition("read_time is too old: versions are kept for an hour.")
        return at

    def remembers(self, database: str, at: int) -> bool:
        """Whether what was there at a time can still be told."""
        return self._cleared.get(database, 0) <= at and at >= self.now() - _HISTORY_SECONDS * 1_000_000

    def _micros(self) -> int:
        moment = self._clock.now()
        return int(moment.timestamp()) * 1_000_000 + moment.microsecond

    def now(self) -> int:
        """A time at which everything committed is visible; whatever is committed later gets a later one."""
        self._last = max(self._last, self._micros())
        return self._last

    def _transaction_ended(self, transaction: Transaction) -> None:
        self._locks.fail(transaction.owner, "The transaction has ended.")
        self._locks.release(transaction.owner)


def _versions(documents: Sequence[Message]) -> tuple[tuple[str, int | None], ...]:
    return tuple((document.name, version(document)) for document in documents)


def _targets(database: str, writes: Sequence[Message]) -> list[DocumentName]:
    names = [target(write) for write in writes]
    for name in names:
        if name.database != database:
            raise InvalidArgument(f"{name} is not in the database {database}.")
    return names
