"""The wire: a grpc.aio server that hands each RPC to its handler, and misbehaves where it is told to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import grpc

from localcloud.faults import Fault, Faults
from localcloud.firestore.composite import Index
from localcloud.firestore.counts import Counts
from localcloud.firestore.engine import Engine
from localcloud.firestore.errors import FirestoreError, InvalidArgument
from localcloud.firestore.front import Front
from localcloud.firestore.handlers import Handlers
from localcloud.firestore.limits import MAX_REQUEST_BYTES
from localcloud.firestore.pb import Document, Empty, Message, request_class, response_class
from localcloud.firestore.store import Store
from localcloud.firestore.streams import Streams
from localcloud.firestore.transactions import Locking
from shared.clock import Clock

SERVICE = "google.firestore.v1.Firestore"
_UNARY = {
    "GetDocument": Document,
    "CreateDocument": Document,
    "UpdateDocument": Document,
    "DeleteDocument": Empty,
    "Rollback": Empty,
    "ListDocuments": response_class("ListDocuments"),
    "ListCollectionIds": response_class("ListCollectionIds"),
    "BeginTransaction": response_class("BeginTransaction"),
    "Commit": response_class("Commit"),
    "BatchWrite": response_class("BatchWrite"),
    "PartitionQuery": response_class("PartitionQuery"),
}
_STREAMS = ("BatchGetDocuments", "RunQuery", "RunAggregationQuery", "ExecutePipeline")
_BOTH_WAYS = ("Listen", "Write")
# Larger than what is allowed, so that a request that is too large is answered as Google answers it.
_RECEIVE_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningFirestore:
    port: int
    faults: Faults
    counts: Counts
    engine: Engine
    front: Front
    server: grpc.aio.Server

    def needed_indexes(self) -> list[Index]:
        """The composite indexes that production would need for the queries run so far."""
        return self.engine.needed_indexes()

    async def stop(self) -> None:
        await self.front.stop()
        await self.server.stop(grace=None)
        self.engine.store.close()


async def start_firestore(
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    clock: Clock,
    faults: Faults,
    data: Path | None = None,
    locking: Locking = "pessimistic",
    lock_seconds: float = 20,
    idle_seconds: float = 60,
    transaction_seconds: float = 270,
) -> RunningFirestore:
    """Serves databases kept in memory, or in the directory `data`."""
    counts = Counts()
    engine = Engine(
        store=Store(data),
        clock=clock,
        counts=counts,
        locking=locking,
        lock_seconds=lock_seconds,
        idle_seconds=idle_seconds,
        transaction_seconds=transaction_seconds,
        notes=data,
    )
    server = grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", _RECEIVE_BYTES),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0),
        ]
    )
    wire = _Wire(
        handlers=Handlers(engine, clock), streams=Streams(engine, clock), faults=faults, counts=counts
    )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, wire.methods()),))
    front = Front(reset=engine.clear, indexes=engine.needed_indexes)
    server.add_insecure_port(front.grpc_address)
    await server.start()
    try:
        bound = await front.start(host, port)
    except OSError:
        await front.stop()
        await server.stop(grace=None)
        raise
    return RunningFirestore(
        port=bound, faults=faults, counts=counts, engine=engine, front=front, server=server
    )


class _Wire:
    def __init__(self, *, handlers: Handlers, streams: Streams, faults: Faults, counts: Counts) -> None:
        self._handlers = handlers
        self._streams = streams
        self._faults = faults
        self._counts = counts

    def methods(self) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
        found: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}
        for method, answer in _UNARY.items():
            found[method] = grpc.unary_unary_rpc_method_handler(
                self._unary(method),
                request_deserializer=request_class(method).FromString,
                response_serializer=answer.SerializeToString,
            )
        for method in _STREAMS:
            found[method] = grpc.unary_stream_rpc_method_handler(
                self._stream(method),
                request_deserializer=request_class(method).FromString,
                response_serializer=response_class(method).SerializeToString,
            )
        for method in _BOTH_WAYS:
            found[method] = grpc.stream_stream_rpc_method_handler(
                self._both_ways(method),
                request_deserializer=request_class(method).FromString,
                response_serializer=response_class(method).SerializeToString,
            )
        return found

    def _unary(self, method: str) -> Callable[..., Awaitable[Message]]:
        return partial(self._answer, method)

    def _stream(self, method: str) -> Callable[..., AsyncIterator[Message]]:
        async def answers(
            request: Message, context: grpc.aio.ServicerContext[Any, Any]
        ) -> AsyncIterator[Message]:
            for message in await self._answer(method, request, context):
                yield message

        return answers

    def _both_ways(self, method: str) -> Callable[..., AsyncIterator[Message]]:
        async def answers(
            requests: AsyncIterator[Message], context: grpc.aio.ServicerContext[Any, Any]
        ) -> AsyncIterator[Message]:
            self._counts.rpc(method)
            await _fail(context, await self._faults.before(method))
            try:
                async with aclosing(getattr(self._streams, method)(requests)) as told:
                    async for message in told:
                        await _fail(context, await self._faults.after(method))
                        yield message
            except FirestoreError as error:
                await context.abort(grpc.StatusCode[error.status], str(error))

        return answers

    async def _answer(
        self, method: str, request: Message, context: grpc.aio.ServicerContext[Any, Any]
    ) -> Message:
        self._counts.rpc(method)
        if self._faults.rules:
            await _fail(context, await self._faults.before(method))
        try:
            if request.ByteSize() > MAX_REQUEST_BYTES:
                raise InvalidArgument(f"Request payload size exceeds the limit: {MAX_REQUEST_BYTES} bytes.")
            response = await getattr(self._handlers, method)(request)
        except FirestoreError as error:
            await context.abort(grpc.StatusCode[error.status], str(error))
        if self._faults.rules:
            await _fail(context, await self._faults.after(method))
        return response


async def _fail(context: grpc.aio.ServicerContext[Any, Any], fault: Fault | None) -> None:
    if fault is None:
        return
    status = grpc.StatusCode.__members__.get(fault.error, grpc.StatusCode.UNKNOWN)
    await context.abort(status, str(fault.detail.get("message", f"injected fault {fault.error}")))
