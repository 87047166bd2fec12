"""What is said between the database and its users: how to read, what a commit did, who is told of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from localcloud.firestore.paths import DocumentName
from localcloud.firestore.pb import Message
from localcloud.firestore.transactions import Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What a read sees: the latest, a past time (`at`, in microseconds), or what a transaction sees."""

    transaction: Transaction | None = None
    at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    time: int
    results: list[Message]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a commit did to one document."""

    name: DocumentName
    old: Message | None
    new: Message | None


class Listener(Protocol):
    """Whoever is told of every commit, in order and before anything else happens."""

    def committed(self, database: str, at: int, changes: Sequence[Change]) -> None: ...
    def cleared(self, database: str, at: int) -> None: ...
