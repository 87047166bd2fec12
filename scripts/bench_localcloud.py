"""How fast the embedded cloud is beside a bare gRPC server, and whether its cost grows with what it stores.

Both servers are processes of their own and get the same bytes from the same client, so the ratios say what
the database costs on top of the wire. The machine is shared, so the two take turns of a fraction of a second;
what the processor says (calls per second of its time) stands beside what the clock says.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import psutil
from google.cloud.firestore_v1.types import document, firestore, query, write

DATABASE = "projects/bench/databases/(default)"
ROOT = f"{DATABASE}/documents"
IN_FLIGHT = 32
ECHO = """
import asyncio, base64, json, sys
import grpc

answers = {name: base64.b64decode(body) for name, body in json.loads(sys.stdin.readline()).items()}

def one(body):
    async def answer(request, context):
        return body
    return grpc.unary_unary_rpc_method_handler(answer)

def many(body):
    async def answer(request, context):
        yield body
    return grpc.unary_stream_rpc_method_handler(answer)

async def main():
    server = grpc.aio.server()
    methods = {name: (one if name == "Commit" else many)(body) for name, body in answers.items()}
    service = "google.firestore.v1.Firestore"
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"ECHO=127.0.0.1:{port}", flush=True)
    await server.wait_for_termination()

asyncio.run(main())
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One kind of call: its method, and the request of the n-th one as bytes."""

    name: str
    method: str
    request: Callable[[int], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    address: str
    pid: int

    def processor_seconds(self) -> float:
        times = psutil.Process(self.pid).cpu_times()
        return float(times.user + times.system)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench-localcloud ARGS=…", description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.4, help="per turn")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--documents", type=int, default=100_000, help="the most to store")
    asked = parser.parse_args()
    return asyncio.run(measure_firestore(asked.seconds, asked.rounds, asked.documents))


async def measure_firestore(seconds: float, rounds: int, most: int) -> int:
    async with (
        served("-m", "localcloud.firestore", "--port", "0") as ours,
        grpc.aio.insecure_channel(ours.address) as channel,
    ):
        await store(channel, 0, 100)
        works = works_on(100)
        answers = {work.method: await answer(channel, work) for work in works}
        print("Firestore: calls per second beside a bare grpc.aio server with the same messages")
        told = json.dumps({name: base64.b64encode(body).decode() for name, body in answers.items()})
        async with (
            served("-c", ECHO, told=told) as theirs,
            grpc.aio.insecure_channel(theirs.address) as bare,
        ):
            ratios = [await compare(work, (channel, ours), (bare, theirs), seconds, rounds) for work in works]
        print("Firestore: cost per call beside the cost with 100 documents")
        await grow(channel, seconds, rounds, most)
    return 1 if min(ratios) < 0.5 else 0


async def compare(
    work: Work,
    ours: tuple[grpc.aio.Channel, Served],
    theirs: tuple[grpc.aio.Channel, Served],
    seconds: float,
    rounds: int,
) -> float:
    by_clock: list[list[float]] = [[], []]
    by_processor: list[list[float]] = [[], []]
    for _ in range(rounds):
        for side, (channel, server) in enumerate((ours, theirs)):
            before = server.processor_seconds()
            by_clock[side].append(await rate(channel, work, seconds))
            by_processor[side].append(by_clock[side][-1] * seconds / (server.processor_seconds() - before))
    (clock, bare_clock), (processor, bare_processor) = (
        [statistics.median(values) for values in sides] for sides in (by_clock, by_processor)
    )
    print(
        f"  {work.name:<22} {clock:6.0f} of {bare_clock:6.0f}  {clock / bare_clock:5.0%}"
        f"   per second of processor {processor:6.0f} of {bare_processor:6.0f}"
        f"  {processor / bare_processor:5.0%}"
    )
    return clock / bare_clock


async def grow(channel: grpc.aio.Channel, seconds: float, rounds: int, most: int) -> None:
    first: dict[str, float] = {}
    stored = 100
    while True:
        costs = {}
        for work in works_on(stored):
            await answer(channel, work)
            rates = [await rate(channel, work, seconds) for _ in range(max(3, rounds // 2))]
            costs[work.name] = 1 / statistics.median(rates)
        first = first or costs
        line = "  ".join(f"{name} ×{cost / first[name]:.2f}" for name, cost in costs.items())
        print(f"  {stored:>7} documents  {line}")
        if stored >= most:
            return
        await store(channel, stored, min(most, stored * 10))
        stored = min(most, stored * 10)


def works_on(stored: int) -> list[Work]:
    def read(number: int) -> bytes:
        name = f"{ROOT}/things/{number * 7919 % stored:06}"
        return bytes(
            firestore.BatchGetDocumentsRequest.serialize(
                firestore.BatchGetDocumentsRequest(database=DATABASE, documents=[name])
            )
        )

    def put(number: int) -> bytes:
        update = thing(number * 7919 % stored, version=number)
        return bytes(
            firestore.CommitRequest.serialize(
                firestore.CommitRequest(database=DATABASE, writes=[write.Write(update=update)])
            )
        )

    def find(number: int) -> bytes:
        group = query.StructuredQuery.FieldFilter(
            field=query.StructuredQuery.FieldReference(field_path="group"),
            op=query.StructuredQuery.FieldFilter.Operator.EQUAL,
            value=document.Value(integer_value=number * 7919 % stored // 10),
        )
        asked = query.StructuredQuery(
            from_=[query.StructuredQuery.CollectionSelector(collection_id="things")],
            where=query.StructuredQuery.Filter(field_filter=group),
            limit=1,
        )
        return bytes(
            firestore.RunQueryRequest.serialize(
                firestore.RunQueryRequest(parent=ROOT, structured_query=asked)
            )
        )

    return [
        Work(name="read one", method="BatchGetDocuments", request=read),
        Work(name="write one", method="Commit", request=put),
        Work(name="query with one result", method="RunQuery", request=find),
    ]


def thing(number: int, version: int = 0) -> document.Document:
    return document.Document(
        name=f"{ROOT}/things/{number:06}",
        fields={
            "group": document.Value(integer_value=number // 10),
            "version": document.Value(integer_value=version),
            "status": document.Value(string_value="pending"),
            "prompt": document.Value(string_value="a linen shirt on a rooftop at dusk, " * 4),
        },
    )


async def store(channel: Any, first: int, last: int) -> None:
    commit = channel.unary_unary("/google.firestore.v1.Firestore/Commit")
    for start in range(first, last, 500):
        writes = [write.Write(update=thing(number)) for number in range(start, min(last, start + 500))]
        request = firestore.CommitRequest(database=DATABASE, writes=writes)
        await commit(firestore.CommitRequest.serialize(request))


def caller(channel: Any, work: Work) -> Callable[[bytes], Awaitable[bytes]]:
    path = f"/google.firestore.v1.Firestore/{work.method}"
    if work.method == "Commit":
        unary = channel.unary_unary(path)

        async def call(request: bytes) -> bytes:
            return bytes(await unary(request))
    else:
        stream = channel.unary_stream(path)

        async def call(request: bytes) -> bytes:
            return b"".join([message async for message in stream(request)])

    return call


async def answer(channel: grpc.aio.Channel, work: Work) -> bytes:
    return await caller(channel, work)(work.request(1))


async def rate(channel: grpc.aio.Channel, work: Work, seconds: float) -> float:
    call = caller(channel, work)
    requests = [work.request(number) for number in range(2000)]
    done = 0
    began = time.perf_counter()

    async def keep_calling(start: int) -> None:
        nonlocal done
        number = start
        while time.perf_counter() - began < seconds:
            await call(requests[number % len(requests)])
            number += IN_FLIGHT
            done += 1

    await asyncio.gather(*(keep_calling(start) for start in range(IN_FLIGHT)))
    return done / (time.perf_counter() - began)


@asynccontextmanager
async def served(*arguments: str, told: str = "") -> AsyncIterator[Served]:
    """A server in a process of its own, which says where it is in its first line."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("the server has no pipes")
    process.stdin.write(told.encode() + b"\n")
    try:
        line = (await process.stdout.readline()).decode()
        yield Served(address=line.strip().partition("=")[2], pid=process.pid)
    finally:
        process.kill()
        await process.wait()


if __name__ == "__main__":
    sys.exit(main())
