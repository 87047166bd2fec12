"""Which transactions are open, what each has read, and when each has to end."""

from __future__ import annotations

import itertools
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

from localcloud.firestore.errors import Aborted, InvalidArgument
from localcloud.firestore.locks import CONTENTION, Key, Owner
from localcloud.firestore.paths import DocumentName
from localcloud.firestore.pb import Message
from localcloud.firestore.query import Query
from shared.clock import Clock

Locking: TypeAlias = Literal["pessimistic", "optimistic"]
Mode: TypeAlias = Literal["pessimistic", "optimistic", "read_only"]

_REMEMBERED = 10_000
_GONE = "The referenced transaction has expired or is no longer valid."


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRead:
    """A query that a transaction ran, and how far its answer reached."""

    query: Query
    boundary: bytes | None
    versions: tuple[tuple[str, int | None], ...]

    def sees(self, name: DocumentName, document: Message | None) -> bool:
        """Whether a version of a document belongs to what was read."""
        if document is None or not self.query.covers(name):
            return False
        place = self.query.place(document)
        return place is not None and (self.boundary is None or place <= self.boundary)


@dataclass(slots=True, kw_only=True, eq=False)
class Transaction:
    id: bytes
    database: str
    mode: Mode
    owner: Owner
    began: datetime
    used: datetime
    snapshot: int | None = None
    """The time that a read-only or optimistic transaction reads at."""
    contested: frozenset[Key] = frozenset()
    """What the attempt before this one lost a fight for: locked exclusively already when read."""
    documents: dict[Key, tuple[DocumentName, int | None]] = field(default_factory=dict)
    queries: list[QueryRead] = field(default_factory=list)
    wanted: frozenset[Key] = frozenset()


class Transactions:
    def __init__(
        self,
        *,
        clock: Clock,
        idle_seconds: float,
        total_seconds: float,
        ended: Callable[[Transaction], None],
    ) -> None:
        self._clock = clock
        self._idle = timedelta(seconds=idle_seconds)
        self._total = timedelta(seconds=total_seconds)
        self._ended = ended
        self._open: dict[bytes, Transaction] = {}
        self._past: OrderedDict[bytes, tuple[int, frozenset[Key], bool]] = OrderedDict()
        self._ages = itertools.count(1)

    def begin(
        self, database: str, mode: Mode, *, snapshot: int | None = None, retry: bytes = b""
    ) -> Transaction:
        age, contested = next(self._ages), frozenset[Key]()
        if retry and retry in self._past:
            age, contested, _ = self._past[retry]
        now = self._clock.now()
        transaction = Transaction(
            id=secrets.token_bytes(16),
            database=database,
            mode=mode,
            owner=Owner(age=age, is_transaction=True),
            began=now,
            used=now,
            snapshot=snapshot,
            contested=contested,
        )
        self._open[transaction.id] = transaction
        return transaction

    def single_commit(self) -> Owner:
        return Owner(age=next(self._ages), is_transaction=False, committing=True)

    def use(self, number: bytes, database: str) -> Transaction:
        self.expire()
        transaction = self._open.get(number)
        if transaction is None:
            if number in self._past and self._past[number][2]:
                raise Aborted(f"{CONTENTION} the same data.")
            raise InvalidArgument(_GONE)
        if transaction.database != database:
            raise InvalidArgument("The transaction belongs to another database.")
        transaction.used = self._clock.now()
        return transaction

    def is_open(self, transaction: Transaction) -> bool:
        return transaction.id in self._open

    def was_known(self, number: bytes) -> bool:
        return number in self._past

    def others(self, owner: Owner | None, database: str) -> list[Transaction]:
        return [
            transaction
            for transaction in self._open.values()
            if transaction.owner is not owner
            and transaction.queries
            and transaction.mode == "pessimistic"
            and transaction.database == database
        ]

    def end(self, transaction: Transaction, *, aborted: bool = False) -> None:
        if self._open.pop(transaction.id, None) is None:
            return
        self._past[transaction.id] = (transaction.owner.age, transaction.wanted, aborted)
        while len(self._past) > _REMEMBERED:
            self._past.popitem(last=False)
        self._ended(transaction)

    def end_all(self, database: str) -> None:
        for transaction in list(self._open.values()):
            if transaction.database == database:
                self.end(transaction, aborted=True)

    def expire(self) -> datetime | None:
        """Ends what is overdue and tells when the next transaction will be."""
        now = self._clock.now()
        for transaction in list(self._open.values()):
            if self._due(transaction) <= now:
                self.end(transaction)
        return min(map(self._due, self._open.values()), default=None)

    def _due(self, transaction: Transaction) -> datetime:
        if transaction.owner.committing:
            return transaction.began + self._total
        return min(transaction.used + self._idle, transaction.began + self._total)
