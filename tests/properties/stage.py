"""The loop, the embedded Firestore and the connection that worlds share; each world has a project of its own."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import logging
import os
from collections.abc import Coroutine, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar, cast
from unittest.mock import patch

from google.auth.credentials import AnonymousCredentials
from google.cloud import firestore
from google.cloud.firestore_v1 import _helpers

from localcloud.faults import Faults
from localcloud.firestore import RunningFirestore, start_firestore
from localcloud.firestore.paths import DocumentName
from localcloud.firestore.pb import Document
from shared.clock import SystemClock

T = TypeVar("T")

OWNER: contextvars.ContextVar[set[asyncio.Task[Any]] | None] = contextvars.ContextVar("owner", default=None)
"""The tasks of the process that the present code runs in: what ends when it is killed."""


class Inline(ThreadPoolExecutor):
    """Work that would go to a thread is done at once, so that every run is the same."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - carried to whoever asked
            done.set_exception(error)
        return done


class Stage:
    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_task_factory(cast(Any, _owned))
        self.inline: Executor = Inline(max_workers=1)
        self._loop.set_default_executor(self.inline)
        self._projects = itertools.count()
        self._server: RunningFirestore = self.run(start_firestore(clock=SystemClock(), faults=Faults()))
        self._first = self._client("stage")
        self._api = self.run(self._connected())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)

    def new_client(self) -> firestore.AsyncClient:
        """For a database of its own, over the one connection."""
        client = self._client(f"world-{next(self._projects)}")
        client._firestore_api_internal = self._api
        return client

    def forget(self, client: firestore.AsyncClient) -> None:
        self._server.engine.clear(client._database_string)

    def peek(self, client: firestore.AsyncClient, path: str) -> dict[str, Any] | None:
        """A document as it is this moment, past the wire: for checks, which must not disturb what they check."""
        name = DocumentName(database=client._database_string, segments=tuple(path.split("/")))
        body = self._server.engine.store.get(name)
        if body is None:
            return None
        return cast(dict[str, Any], _helpers.decode_dict(Document.FromString(body).fields, client))

    def close(self) -> None:
        async def end() -> None:
            await self._api.transport.close()
            await self._server.stop()

        self.run(end())
        self._loop.close()

    async def _connected(self) -> Any:
        """A channel belongs to the loop that it was made in."""
        return self._first._firestore_api

    def _client(self, project: str) -> firestore.AsyncClient:
        with patch.dict(os.environ, FIRESTORE_EMULATOR_HOST=f"127.0.0.1:{self._server.port}"):
            nobody = AnonymousCredentials()  # type: ignore[no-untyped-call]
            return firestore.AsyncClient(project=project, credentials=nobody)


def _owned(
    loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T], **more: Any
) -> asyncio.Task[T]:
    task = asyncio.Task(coroutine, loop=loop, **more)
    owner = OWNER.get()
    if owner is not None:
        owner.add(task)
        task.add_done_callback(owner.discard)
    return task


@contextmanager
def opened() -> Iterator[Stage]:
    """What goes wrong is what these tests are about: the log lines of it are not wanted."""
    logger = logging.getLogger("lookbook")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    stage = Stage()
    try:
        yield stage
    finally:
        stage.close()
        logger.setLevel(level)
