"""Where queues and tasks survive the process: SQLite in a data directory, or nowhere.

The engine keeps everything in memory and tells the store of each change before it answers or acts, so that
after a kill -9 nothing acknowledged is missing and whatever was under way is delivered again.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Protocol

from pydantic import TypeAdapter

from localcloud.tasks.queue import Queue
from localcloud.tasks.task import Progress, Task
from shared.clock import from_unix_ms, unix_ms

_QUEUE = TypeAdapter(Queue)
_TASK = TypeAdapter(Task)
_PROGRESS = TypeAdapter(Progress)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS queues (name TEXT PRIMARY KEY, spec BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tasks (
    name TEXT PRIMARY KEY, queue TEXT NOT NULL, number INTEGER NOT NULL,
    spec BLOB NOT NULL, body BLOB NOT NULL, progress BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS tasks_of_queue ON tasks (queue);
CREATE TABLE IF NOT EXISTS tombstones (
    name TEXT PRIMARY KEY, queue TEXT NOT NULL, until INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS tombstones_of_queue ON tombstones (queue);
CREATE INDEX IF NOT EXISTS tombstones_by_age ON tombstones (until);
CREATE TABLE IF NOT EXISTS taken_queues (name TEXT PRIMARY KEY, until INTEGER NOT NULL) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """Everything a store holds, oldest first."""

    queues: list[Queue] = field(default_factory=list)
    tasks: list[tuple[str, Task]] = field(default_factory=list)
    tombstones: list[tuple[str, str, datetime]] = field(default_factory=list)
    """Queue, task name, and until when the name is taken."""
    taken_queues: list[tuple[str, datetime]] = field(default_factory=list)
    """Names of deleted queues, and until when they are taken."""


class Store(Protocol):
    def load(self) -> Saved: ...

    def save_queue(self, queue: Queue) -> None: ...

    def delete_queue(self, name: str, until: datetime) -> None: ...

    def add_task(self, queue: str, task: Task) -> None: ...

    def save_progress(self, task: Task) -> None: ...

    def bury(self, queue: str, names: Iterable[str], until: datetime) -> None:
        """The tasks are gone; their names stay taken."""
        ...

    def forget_buried(self, now: datetime) -> None: ...

    def clear(self) -> None: ...

    def close(self) -> None: ...


class NoStore:
    """For a cloud that is forgotten when it stops."""

    def load(self) -> Saved:
        return Saved()

    def save_queue(self, queue: Queue) -> None: ...

    def delete_queue(self, name: str, until: datetime) -> None: ...

    def add_task(self, queue: str, task: Task) -> None: ...

    def save_progress(self, task: Task) -> None: ...

    def bury(self, queue: str, names: Iterable[str], until: datetime) -> None: ...

    def forget_buried(self, now: datetime) -> None: ...

    def clear(self) -> None: ...

    def close(self) -> None: ...


class SqliteStore:
    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(path, isolation_level=None, timeout=0.5)
        try:
            # One process per directory: a second one fails here instead of dispatching everything twice.
            self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._db.execute("PRAGMA journal_mode = WAL")
            # Written pages outlive a killed process; only a power cut could lose the last of them.
            self._db.execute("PRAGMA synchronous = NORMAL")
            self._db.execute("PRAGMA wal_autocheckpoint = 10000")
            self._db.executescript(_SCHEMA)
        except sqlite3.Error:
            self._db.close()
            raise

    def load(self) -> Saved:
        queues = [_QUEUE.validate_json(spec) for (spec,) in self._db.execute("SELECT spec FROM queues")]
        tasks = []
        rows = self._db.execute("SELECT queue, spec, body, progress FROM tasks ORDER BY number")
        for queue, spec, body, progress in rows:
            fields = json.loads(spec)
            fields["call"]["body"] = body
            fields["progress"] = json.loads(progress)
            tasks.append((queue, _TASK.validate_python(fields)))
        tombstones = [
            (queue, name, from_unix_ms(until))
            for queue, name, until in self._db.execute(
                "SELECT queue, name, until FROM tombstones ORDER BY until"
            )
        ]
        taken_queues = [
            (name, from_unix_ms(until))
            for name, until in self._db.execute("SELECT name, until FROM taken_queues")
        ]
        return Saved(queues=queues, tasks=tasks, tombstones=tombstones, taken_queues=taken_queues)

    def save_queue(self, queue: Queue) -> None:
        self._db.execute("INSERT OR REPLACE INTO queues VALUES (?, ?)", (queue.name, _QUEUE.dump_json(queue)))

    def delete_queue(self, name: str, until: datetime) -> None:
        with self._transaction():
            self._db.execute("DELETE FROM queues WHERE name = ?", (name,))
            self._db.execute("DELETE FROM tasks WHERE queue = ?", (name,))
            self._db.execute("DELETE FROM tombstones WHERE queue = ?", (name,))
            self._db.execute("INSERT OR REPLACE INTO taken_queues VALUES (?, ?)", (name, unix_ms(until)))

    def add_task(self, queue: str, task: Task) -> None:
        spec = _TASK.dump_json(task, exclude={"progress": True, "call": {"body"}})
        row = (task.name, queue, task.number, spec, task.call.body, _PROGRESS.dump_json(task.progress))
        self._db.execute("INSERT INTO tasks VALUES (?, ?, ?, ?, ?, ?)", row)

    def save_progress(self, task: Task) -> None:
        self._db.execute(
            "UPDATE tasks SET progress = ? WHERE name = ?", (_PROGRESS.dump_json(task.progress), task.name)
        )

    def bury(self, queue: str, names: Iterable[str], until: datetime) -> None:
        names = list(names)
        with self._transaction():
            self._db.executemany("DELETE FROM tasks WHERE name = ?", [(name,) for name in names])
            self._db.executemany(
                "INSERT OR REPLACE INTO tombstones VALUES (?, ?, ?)",
                [(name, queue, unix_ms(until)) for name in names],
            )

    def forget_buried(self, now: datetime) -> None:
        for table in ("tombstones", "taken_queues"):
            self._db.execute(f"DELETE FROM {table} WHERE until <= ?", (unix_ms(now),))  # noqa: S608  our own names

    def clear(self) -> None:
        with self._transaction():
            for table in ("queues", "tasks", "tombstones", "taken_queues"):
                self._db.execute(f"DELETE FROM {table}")  # noqa: S608  our own names

    def close(self) -> None:
        self._db.close()

    def _transaction(self) -> sqlite3.Connection:
        """A connection is a context manager that commits, or rolls back on an error."""
        self._db.execute("BEGIN")
        return self._db
