"""How RPCs that stream both ways are kept open: Listen answers when something happens, Write when told."""

from __future__ import annotations

import asyncio
import secrets
import struct
from collections.abc import AsyncIterator

from localcloud.firestore.engine import Engine
from localcloud.firestore.errors import FirestoreError, InvalidArgument
from localcloud.firestore.paths import check_database
from localcloud.firestore.pb import Message, response_class, timestamp
from localcloud.firestore.watch import Watch
from shared.clock import Clock

_HEARTBEAT_SECONDS = 45
_WRITE_TOKEN = struct.Struct(">Q")


class Streams:
    """One method for each RPC, by its name."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock

    async def Listen(self, requests: AsyncIterator[Message]) -> AsyncIterator[Message]:
        outgoing: asyncio.Queue[Message | FirestoreError | None] = asyncio.Queue()
        watches: list[Watch] = []
        reading = asyncio.create_task(self._read(requests, outgoing, watches))
        beating = asyncio.create_task(self._beat(watches))
        try:
            while (answer := await outgoing.get()) is not None:
                if isinstance(answer, FirestoreError):
                    raise answer
                yield answer
        finally:
            reading.cancel()
            beating.cancel()
            for watch in watches:
                self._engine.unlisten(watch)

    async def _read(
        self,
        requests: AsyncIterator[Message],
        outgoing: asyncio.Queue[Message | FirestoreError | None],
        watches: list[Watch],
    ) -> None:
        database = ""
        try:
            async for request in requests:
                if not watches:
                    database = check_database(request.database)
                    watches.append(Watch(engine=self._engine, database=database, send=outgoing.put_nowait))
                    self._engine.listen(watches[0])
                elif request.database not in {"", database}:
                    raise InvalidArgument("A Listen stream cannot change its database.")
                watches[0].handle(request)
        except FirestoreError as error:
            outgoing.put_nowait(error)
        outgoing.put_nowait(None)

    async def _beat(self, watches: list[Watch]) -> None:
        while True:
            await self._clock.sleep(_HEARTBEAT_SECONDS)
            for watch in watches:
                watch.heartbeat()

    async def Write(self, requests: AsyncIterator[Message]) -> AsyncIterator[Message]:
        answer_class = response_class("Write")
        database, stream, count = "", "", 0
        async for request in requests:
            if not database:
                database = check_database(request.database)
                if request.writes:
                    raise InvalidArgument("The first request of a Write stream must not have writes.")
                stream = request.stream_id or secrets.token_urlsafe(12)
                if request.stream_token:
                    count = _count(request.stream_token)
                yield answer_class(stream_id=stream, stream_token=_WRITE_TOKEN.pack(count))
                continue
            if request.database not in {"", database} or request.stream_id not in {"", stream}:
                raise InvalidArgument("A Write stream cannot change its database or its id.")
            if not request.stream_token:
                raise InvalidArgument("A request on a Write stream must have a stream_token.")
            if _count(request.stream_token) > count:
                raise InvalidArgument("The stream_token is not one of this stream.")
            committed = await self._engine.commit(database, request.writes)
            count += 1
            yield answer_class(
                stream_token=_WRITE_TOKEN.pack(count),
                write_results=committed.results,
                commit_time=timestamp(committed.time),
            )


def _count(token: bytes) -> int:
    if len(token) != _WRITE_TOKEN.size:
        raise InvalidArgument("The stream_token is invalid.")
    (count,) = _WRITE_TOKEN.unpack(token)
    return int(count)
