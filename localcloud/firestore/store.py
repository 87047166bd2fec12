"""Where documents live: SQLite, in memory or in a file that survives the process.

The store knows keys, bodies and index entries; what a write or a query means is decided elsewhere. Superseded
versions are kept for an hour so that reads at a past time and snapshots see what was there.
"""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from localcloud.firestore.indexes import IndexShape, Part, entries, parts_from_json
from localcloud.firestore.paths import DocumentName, after_prefix
from localcloud.firestore.pb import Document, Message, micros

_SCHEMA = """
CREATE TABLE IF NOT EXISTS documents (
    id INTEGER PRIMARY KEY, database TEXT NOT NULL, key BLOB NOT NULL, parent BLOB NOT NULL,
    collection TEXT NOT NULL, update_time INTEGER NOT NULL, body BLOB NOT NULL);
CREATE UNIQUE INDEX IF NOT EXISTS documents_by_key ON documents (database, key);
CREATE INDEX IF NOT EXISTS documents_by_parent ON documents (database, parent, collection, key);
CREATE INDEX IF NOT EXISTS documents_by_group ON documents (database, collection, key);
CREATE TABLE IF NOT EXISTS history (
    id INTEGER PRIMARY KEY AUTOINCREMENT, database TEXT NOT NULL, key BLOB NOT NULL, collection TEXT NOT NULL,
    update_time INTEGER NOT NULL, ended INTEGER NOT NULL, body BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS history_by_key ON history (database, key, ended);
CREATE INDEX IF NOT EXISTS history_by_group ON history (database, collection, ended);
CREATE TABLE IF NOT EXISTS indexes (
    id INTEGER PRIMARY KEY, database TEXT NOT NULL, collection TEXT NOT NULL, is_group INTEGER NOT NULL,
    parts TEXT NOT NULL, UNIQUE (database, collection, is_group, parts));
CREATE TABLE IF NOT EXISTS entries (
    index_id INTEGER NOT NULL, parent BLOB NOT NULL, sort BLOB NOT NULL, key BLOB NOT NULL,
    document INTEGER NOT NULL,
    PRIMARY KEY (index_id, parent, sort, key)) WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS superseded AFTER UPDATE OF body ON documents BEGIN
    INSERT INTO history (database, key, collection, update_time, ended, body)
    VALUES (OLD.database, OLD.key, OLD.collection, OLD.update_time, NEW.update_time, OLD.body);
END;
"""
_HISTORY_MICROS = 3600 * 1_000_000
_PRUNE_EVERY = 256
_PRUNE_AT_ONCE = 2000
_CACHED_BODIES = 20_000
_CACHED_BODY_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A half-open stretch of bytes; `None` means open-ended."""

    low: bytes = b""
    high: bytes | None = None


class Store:
    def __init__(self, data: Path | None = None) -> None:
        if data is not None:
            data.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(
            ":memory:" if data is None else data / "firestore.sqlite", isolation_level=None
        )
        if data is not None:
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
        self._is_durable = data is not None
        self._db.executescript(_SCHEMA)
        self._last_commit = self._stored_last_commit()
        self._commits = 0
        self._cache: OrderedDict[tuple[str, bytes], tuple[bytes, int]] = OrderedDict()
        self._indexes: dict[tuple[str, str], dict[tuple[bool, tuple[Part, ...]], int]] = {}
        for number, database, collection, group, parts in self._db.execute("SELECT * FROM indexes"):
            known = self._indexes.setdefault((database, collection), {})
            known[bool(group), parts_from_json(parts)] = number
        if not self._is_durable:
            # What ends with the process needs no commit: everything happens in one transaction that stays
            # open. Each statement lets go of the interpreter lock, so every one that is saved counts.
            self._db.execute("BEGIN")

    def close(self) -> None:
        self._db.close()

    def last_commit(self) -> int:
        return self._last_commit

    @contextmanager
    def commit(self, at: int) -> Iterator[None]:
        """Everything put and removed inside becomes durable together, or not at all."""
        if self._is_durable:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                self._db.execute("ROLLBACK")
                self._cache.clear()
                raise
        else:
            yield
        self._last_commit = max(self._last_commit, at)
        self._commits += 1
        if self._commits % _PRUNE_EVERY == 0:
            self._db.execute(
                "DELETE FROM history WHERE id IN (SELECT id FROM history ORDER BY id LIMIT ?) AND ended < ?",
                (_PRUNE_AT_ONCE, at - _HISTORY_MICROS),
            )

    def _stored_last_commit(self) -> int:
        (last,) = self._db.execute(
            "SELECT max((SELECT ifnull(max(update_time), 0) FROM documents),"
            " (SELECT ifnull(max(ended), 0) FROM history))"
        ).fetchone()
        return int(last)

    def put(self, name: DocumentName, old: Message | None, new: Message, at: int) -> None:
        """Stores a version; `old` is the current one, which moves into history."""
        body = new.SerializeToString(deterministic=True)
        if old is None:
            row = self._db.execute(
                "INSERT INTO documents (database, key, parent, collection, update_time, body)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (name.database, name.key, name.parent_key, name.collection, at, body),
            ).lastrowid
        else:
            row = None
            self._db.execute(
                "UPDATE documents SET update_time = ?, body = ? WHERE database = ? AND key = ?",
                (at, body, name.database, name.key),
            )
        self._reindex(name, old, new, row)
        self._remember((name.database, name.key), body, at)

    def remove(self, name: DocumentName, old: Message, at: int) -> None:
        self._cache.pop((name.database, name.key), None)
        self._archive(name, at)
        self._reindex(name, old, None, None)
        self._db.execute("DELETE FROM documents WHERE database = ? AND key = ?", (name.database, name.key))

    def clear(self, database: str, at: int) -> None:
        """Forgets everything in one database, its history too."""
        self._cache.clear()
        with self.commit(at):
            self._db.execute(
                "DELETE FROM entries WHERE index_id IN (SELECT id FROM indexes WHERE database = ?)",
                (database,),
            )
            self._db.execute("DELETE FROM documents WHERE database = ?", (database,))
            self._db.execute("DELETE FROM history WHERE database = ?", (database,))

    def get(self, name: DocumentName, at: int | None = None) -> bytes | None:
        """The body of the current version, or of the one that was current at a time."""
        cached = self._cache.get((name.database, name.key))
        if cached is not None and (at is None or cached[1] <= at):
            return cached[0]
        row = self._db.execute(
            "SELECT body, update_time FROM documents WHERE database = ? AND key = ?",
            (name.database, name.key),
        ).fetchone()
        if row is not None:
            self._remember((name.database, name.key), *row)
        if at is not None and (row is None or row[1] > at):
            row = self._db.execute(
                "SELECT body, update_time FROM history WHERE database = ? AND key = ? AND ended > ?"
                " ORDER BY ended LIMIT 1",
                (name.database, name.key, at),
            ).fetchone()
            if row is not None and row[1] > at:
                return None
        return None if row is None else bytes(row[0])

    def _remember(self, key: tuple[str, bytes], body: bytes, update_time: int) -> None:
        if len(body) > _CACHED_BODY_BYTES:
            self._cache.pop(key, None)
            return
        self._cache[key] = (body, update_time)
        if len(self._cache) > _CACHED_BODIES:
            self._cache.popitem(last=False)

    def walk(
        self, database: str, collection: str | None, parent: bytes | None, span: Span, *, reverse: bool
    ) -> Iterator[tuple[bytes, bytes]]:
        """Keys and bodies by name: of a collection in one parent, of a group, or (no collection) of all."""
        where, values = ["database = ?", "key >= ?"], [database, span.low]
        if collection is not None:
            where.append("collection = ?")
            values.append(collection)
        if parent is not None:
            where.append("parent = ?")
            values.append(parent)
        if span.high is not None:
            where.append("key < ?")
            values.append(span.high)
        order = "DESC" if reverse else "ASC"
        return self._db.execute(
            f"SELECT key, body FROM documents WHERE {' AND '.join(where)} ORDER BY key {order}",  # noqa: S608
            values,
        )

    def walk_index(
        self, shape: IndexShape, parent: bytes, span: Span, *, reverse: bool
    ) -> Iterator[tuple[bytes, bytes]]:
        """Keys and bodies in index order."""
        where, values = self._index_range(shape, parent, span)
        order = "DESC" if reverse else "ASC"
        return self._db.execute(
            "SELECT e.key, d.body FROM entries e CROSS JOIN documents d ON d.id = e.document"  # noqa: S608
            f" WHERE {where} ORDER BY e.sort {order}, e.key {order}",
            values,
        )

    def count_index(self, shape: IndexShape, parent: bytes, span: Span, up_to: int | None) -> int:
        where, values = self._index_range(shape, parent, span)
        limit = -1 if up_to is None else up_to
        (number,) = self._db.execute(
            f"SELECT count(*) FROM (SELECT 1 FROM entries e WHERE {where} LIMIT ?)",  # noqa: S608
            [*values, limit],
        ).fetchone()
        return int(number)

    def superseded(self, database: str, collection: str | None, at: int) -> Iterator[tuple[bytes, bytes]]:
        """Keys and bodies of versions that were current at a time and are no longer."""
        where, values = "database = ? AND ended > ? AND update_time <= ?", [database, at, at]
        if collection is not None:
            where += " AND collection = ?"
            values.append(collection)
        return self._db.execute(f"SELECT key, body FROM history WHERE {where}", values)  # noqa: S608

    def next_key(self, database: str, span: Span) -> bytes | None:
        row = self._db.execute(
            "SELECT key FROM documents WHERE database = ? AND key >= ? AND (? IS NULL OR key < ?)"
            " ORDER BY key LIMIT 1",
            (database, span.low, span.high, span.high),
        ).fetchone()
        return None if row is None else bytes(row[0])

    def keys_at(self, database: str, span: Span, at: int) -> list[bytes]:
        """The keys of all documents that there were at a time, in order."""
        where = "database = ? AND key >= ? AND (? IS NULL OR key < ?) AND update_time <= ?"
        values = (database, span.low, span.high, span.high, at)
        rows = self._db.execute(
            f"SELECT key FROM documents WHERE {where}"  # noqa: S608
            f" UNION SELECT key FROM history WHERE {where} AND ended > ? ORDER BY key",
            (*values, *values, at),
        )
        return [bytes(row[0]) for row in rows]

    def _index_range(self, shape: IndexShape, parent: bytes, span: Span) -> tuple[str, list[object]]:
        number = self._index(shape)
        values: list[object] = [number, b"" if shape.group else parent, span.low]
        where = "e.index_id = ? AND e.parent = ? AND e.sort >= ?"
        if span.high is not None:
            where += " AND e.sort < ?"
            values.append(span.high)
        return where, values

    def _archive(self, name: DocumentName, at: int) -> None:
        self._db.execute(
            "INSERT INTO history (database, key, collection, update_time, ended, body)"
            " SELECT database, key, collection, update_time, ?, body FROM documents"
            " WHERE database = ? AND key = ?",
            (at, name.database, name.key),
        )

    def _reindex(self, name: DocumentName, old: Message | None, new: Message | None, row: int | None) -> None:
        known = self._indexes.get((name.database, name.collection))
        if not known:
            return
        for (group, parts), number in known.items():
            before = entries(parts, old) if old is not None else set()
            after = entries(parts, new) if new is not None else set()
            parent = b"" if group else name.parent_key
            if before - after:
                self._db.executemany(
                    "DELETE FROM entries WHERE index_id = ? AND parent = ? AND sort = ? AND key = ?",
                    [(number, parent, sort, name.key) for sort in before - after],
                )
            if after - before:
                row = row if row is not None else self._row(name)
                self._db.executemany(
                    "INSERT INTO entries VALUES (?, ?, ?, ?, ?)",
                    [(number, parent, sort, name.key, row) for sort in after - before],
                )

    def _row(self, name: DocumentName) -> int:
        (row,) = self._db.execute(
            "SELECT id FROM documents WHERE database = ? AND key = ?", (name.database, name.key)
        ).fetchone()
        return int(row)

    def _index(self, shape: IndexShape) -> int:
        known = self._indexes.setdefault((shape.database, shape.collection), {})
        number = known.get((shape.group, shape.parts))
        return number if number is not None else self._build(shape)

    def _build(self, shape: IndexShape) -> int:
        with self.commit(self.last_commit()):
            number = self._db.execute(
                "INSERT INTO indexes (database, collection, is_group, parts) VALUES (?, ?, ?, ?)",
                (shape.database, shape.collection, shape.group, shape.parts_json()),
            ).lastrowid
            rows = self._db.execute(
                "SELECT id, key, parent, body FROM documents WHERE database = ? AND collection = ?",
                (shape.database, shape.collection),
            ).fetchall()
            for row, key, parent, body in rows:
                self._db.executemany(
                    "INSERT INTO entries VALUES (?, ?, ?, ?, ?)",
                    [
                        (number, b"" if shape.group else parent, sort, key, row)
                        for sort in entries(shape.parts, Document.FromString(body))
                    ],
                )
        if number is None:
            raise sqlite3.InternalError("the new index has no row id")
        self._indexes[shape.database, shape.collection][shape.group, shape.parts] = number
        return number


def version(document: Message | None) -> int | None:
    """The update time of a document, which identifies its version."""
    return None if document is None else micros(document.update_time)


def below(prefix: bytes) -> Span:
    """Everything whose key starts with a prefix."""
    return Span(low=prefix, high=after_prefix(prefix) if prefix else None)
