"""Firestore as this project uses it: fenced Commits, point reads, and a few indexed queries.

Every state change is one Commit whose writes carry preconditions (`Write.version`, or creation). A Commit that loses a
race raises `Conflict` and has changed nothing. The SDK repeats a Commit whose answer was lost, and the repetition then
conflicts with itself: whoever catches `Conflict` re-reads and looks for its own token before giving up.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from google.api_core import exceptions as gexc
from google.api_core.retry import AsyncRetry, if_exception_type
from google.cloud import firestore

Version = Any
"""An update time of Firestore's; opaque here, compared only by the server."""

_TIMEOUT = 20.0
_RETRY = AsyncRetry(
    predicate=if_exception_type(gexc.ServiceUnavailable, gexc.ResourceExhausted),
    initial=0.05,
    maximum=2.0,
    multiplier=2.0,
    timeout=_TIMEOUT,
)
_ABORTED_TRIES = 6


class Conflict(Exception):
    """A precondition of the Commit did not hold; nothing was written."""


class Kind(Enum):
    CREATE = auto()
    UPDATE = auto()
    MERGE = auto()
    DELETE = auto()


@dataclass(frozen=True, slots=True)
class Write:
    """One write of a Commit; `fields` are field paths for an update, a nested document otherwise."""

    kind: Kind
    path: str
    fields: dict[str, Any]
    version: Version | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    path: str
    version: Version
    fields: dict[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return self.path.rsplit("/", 1)[1]


def create(path: str, fields: dict[str, Any]) -> Write:
    return Write(Kind.CREATE, path, fields)


def update(path: str, fields: dict[str, Any], version: Version | None = None) -> Write:
    """Changes the named fields of a document that exists; with `version`, only if it is still that one."""
    return Write(Kind.UPDATE, path, fields, version)


def merge(path: str, fields: dict[str, Any]) -> Write:
    """Changes the named fields, creating the document if need be; for writes that commute."""
    return Write(Kind.MERGE, path, fields)


def delete(path: str) -> Write:
    return Write(Kind.DELETE, path, {})


def write_version(version: Version) -> str:
    return str(version.rfc3339())


def read_version(text: str) -> Version:
    from google.api_core.datetime_helpers import DatetimeWithNanoseconds

    return DatetimeWithNanoseconds.from_rfc3339(text)  # type: ignore[no-untyped-call]


class Documents:
    def __init__(self, client: firestore.AsyncClient, *, rng: random.Random) -> None:
        self._db = client
        self._rng = rng

    async def commit(self, *writes: Write) -> list[Version]:
        """The new versions, in the order of the writes."""
        for attempt in range(_ABORTED_TRIES):
            batch = self._db.batch()
            for write in writes:
                reference = self._db.document(write.path)
                if write.kind is Kind.CREATE:
                    batch.create(reference, write.fields)
                elif write.kind is Kind.DELETE:
                    batch.delete(reference)
                elif write.kind is Kind.MERGE:
                    batch.set(reference, write.fields, merge=True)
                elif write.version is not None:
                    option = self._db.write_option(last_update_time=write.version)
                    batch.update(reference, write.fields, option=option)
                else:
                    batch.update(reference, write.fields)
            try:
                results = await batch.commit(retry=_RETRY, timeout=_TIMEOUT)
            except (gexc.FailedPrecondition, gexc.AlreadyExists, gexc.NotFound) as error:
                raise Conflict(str(error.message)) from error
            except gexc.Aborted:
                # Nothing was written. The SDK has no backoff of its own here.
                if attempt == _ABORTED_TRIES - 1:
                    raise
                await asyncio.sleep(self._rng.uniform(0, 0.02 * 2**attempt))
                continue
            return [result.update_time for result in results]
        raise AssertionError("unreachable")

    async def get(self, *paths: str) -> list[Document | None]:
        """One round trip; the answers in the order asked."""
        references = [self._db.document(path) for path in paths]
        found: dict[str, Document] = {}
        async for snapshot in self._db.get_all(references, retry=_RETRY, timeout=_TIMEOUT):
            if snapshot.exists:
                path = snapshot.reference.path
                found[path] = Document(
                    path=path, version=snapshot.update_time, fields=snapshot.to_dict() or {}
                )
        return [found.get(path) for path in paths]

    async def list(self, query: Any) -> list[Document]:
        return [
            Document(
                path=snapshot.reference.path, version=snapshot.update_time, fields=snapshot.to_dict() or {}
            )
            async for snapshot in query.stream(retry=_RETRY, timeout=_TIMEOUT)
        ]

    async def count_and_sum(self, query: Any, field_name: str) -> tuple[int, int]:
        aggregation = query.count(alias="n").sum(field_name, alias="sum")
        rows: Sequence[Sequence[Any]] = await aggregation.get(retry=_RETRY, timeout=_TIMEOUT)
        values = {row.alias: row.value for row in rows[0]}
        return int(values.get("n") or 0), int(values.get("sum") or 0)

    def collection(self, path: str) -> Any:
        return self._db.collection(path)

    def collection_group(self, name: str) -> Any:
        return self._db.collection_group(name)
