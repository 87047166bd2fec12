"""How fast the embedded Cloud Tasks is, in ratios of one run: to a bare gRPC echo, and to its own size.

The echo answers bytes of the same sizes and does nothing else, so the ratio is what Cloud Tasks itself costs.
Both servers are processes of their own; the same client drives them in turns, with messages made beforehand.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import grpc.aio
import psutil
from google.cloud.tasks_v2 import types

SERVICE = "/google.cloud.tasks.v2.CloudTasks"
ROOT = Path(__file__).resolve().parent.parent
LOCATION = "projects/bench/locations/here"
QUEUE = f"{LOCATION}/queues/paused"
BODY = b"x" * 300
NAMES = count()
_TICK = 0.01
"""Seconds: as finely as the system tells a process's time."""

ECHO = """
import asyncio, sys
import grpc, grpc.aio

class Echo(grpc.GenericRpcHandler):
    def service(self, details):
        size = int(details.method.rsplit("/", 1)[1])
        answer = b"x" * size
        async def serve(request, context):
            return answer
        return grpc.unary_unary_rpc_method_handler(serve)

async def main():
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers((Echo(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"ECHO=127.0.0.1:{port}", flush=True)
    await server.wait_for_termination()

asyncio.run(main())
"""

WORKER = """
import asyncio

class Worker(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.left = transport, b""
    def data_received(self, data):
        self.left += data
        while b"\\r\\n\\r\\n" in self.left:  # the tasks have no bodies
            _, _, self.left = self.left.partition(b"\\r\\n\\r\\n")
            self.transport.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n")

async def main():
    server = await asyncio.get_running_loop().create_server(Worker, "127.0.0.1", 0)
    print(f"WORKER=http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@dataclass(frozen=True, slots=True)
class Served:
    address: str
    process: psutil.Process

    def cpu(self) -> float:
        times = self.process.cpu_times()
        return float(times.user + times.system)


@dataclass(frozen=True, slots=True)
class Speed:
    per_second: float
    cpu_us: float
    """Of the server, per call."""


@contextlib.asynccontextmanager
async def child(*arguments: str) -> AsyncIterator[Served]:
    """A server as a process of its own; the first line that it prints ends with its address."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )
    assert process.stdout is not None  # noqa: S101  it is piped
    try:
        address = (await process.stdout.readline()).decode().strip().split("=", 1)[1]
        yield Served(address, psutil.Process(process.pid))
    finally:
        process.kill()
        await process.wait()


def raw(channel: grpc.aio.Channel, method: str) -> Callable[[bytes], Any]:
    call: Callable[[bytes], Any] = channel.unary_unary(method, None, None)
    return call


async def speed(
    call: Callable[[bytes], Any], requests: list[bytes], server: Served, *, at_once: int
) -> Speed:
    todo = iter(requests)

    async def work() -> None:
        for request in todo:
            await call(request)

    cpu, start = server.cpu(), time.perf_counter()
    await asyncio.gather(*(work() for _ in range(at_once)))
    seconds = time.perf_counter() - start
    return Speed(len(requests) / seconds, max(server.cpu() - cpu, _TICK) / len(requests) * 1e6)


def creation() -> Any:
    pb = types.CreateTaskRequest.pb()(parent=QUEUE)
    pb.task.name = f"{QUEUE}/tasks/{next(NAMES):08x}"
    pb.task.http_request.url = "http://127.0.0.1:1/work"
    pb.task.http_request.body = BODY
    pb.task.http_request.headers["Content-Type"] = "application/json"
    return pb


def creations(number: int) -> list[bytes]:
    return [creation().SerializeToString() for _ in range(number)]


def reads(number: int, names: list[str]) -> list[bytes]:
    request = types.GetTaskRequest.pb()
    return [request(name=names[index % len(names)]).SerializeToString() for index in range(number)]


def deletions(names: Iterable[str]) -> list[bytes]:
    request = types.DeleteTaskRequest.pb()
    return [request(name=name).SerializeToString() for name in names]


async def make_queue(channel: grpc.aio.Channel, name: str, *, paused: bool) -> None:
    request = types.CreateQueueRequest.pb()(parent=LOCATION)
    request.queue.name = name
    await raw(channel, f"{SERVICE}/CreateQueue")(request.SerializeToString())
    if paused:
        pause = types.PauseQueueRequest.pb()(name=name)
        await raw(channel, f"{SERVICE}/PauseQueue")(pause.SerializeToString())


async def fill(channel: grpc.aio.Channel, number: int) -> list[str]:
    create = raw(channel, f"{SERVICE}/BatchCreateTasks")
    names = []
    for start in range(0, number, 100):
        batch = types.BatchCreateTasksRequest.pb()(parent=QUEUE)
        batch.requests.extend(creation() for _ in range(min(100, number - start)))
        names += [request.task.name for request in batch.requests]
        await create(batch.SerializeToString())
    return names


async def against_echo(calls: int, rounds: int, at_once: int, data: str | None) -> None:
    more = ("--data", data) if data else ()
    async with (
        child("-c", ECHO) as echo,
        child("-m", "localcloud", "tasks", "--port", "0", *more) as tasks,
        grpc.aio.insecure_channel(echo.address) as to_echo,
        grpc.aio.insecure_channel(tasks.address) as to_tasks,
    ):
        await make_queue(to_tasks, QUEUE, paused=True)
        names = await fill(to_tasks, 100)
        get, create = raw(to_tasks, f"{SERVICE}/GetTask"), raw(to_tasks, f"{SERVICE}/CreateTask")
        got, made = len(await get(reads(1, names)[0])), len(await create(creations(1)[0]))
        plans = {
            "GetTask": (get, lambda: reads(calls, names), raw(to_echo, f"/echo/{got}")),
            "CreateTask": (create, lambda: creations(calls), raw(to_echo, f"/echo/{made}")),
        }
        print(f"\n{'on disk' if data else 'in memory'}, {at_once} at once, medians of {rounds} rounds")
        for name, (method, requests, bare) in plans.items():
            pairs = []
            for _ in range(rounds):
                messages = requests()
                bare_speed = await speed(bare, messages, echo, at_once=at_once)
                pairs.append((await speed(method, messages, tasks, at_once=at_once), bare_speed))
            ratio = statistics.median(ours.per_second / bare.per_second for ours, bare in pairs)
            cpu = statistics.median(bare.cpu_us / ours.cpu_us for ours, bare in pairs)
            ours = statistics.median(ours.per_second for ours, _ in pairs)
            theirs = statistics.median(bare.per_second for _, bare in pairs)
            print(
                f"  {name:<11} {ours:6.0f} calls/s, echo {theirs:6.0f}: {ratio:6.1%}"
                f"   (by the server's processor time alone: {cpu:.1%})"
            )


async def against_size(sizes: tuple[int, int], calls: int, data: str | None) -> None:
    """The server's processor time per call with few and with many tasks in the queue."""
    more = ("--data", data) if data else ()
    costs: dict[str, list[float]] = {}
    memory = []
    async with (
        child("-m", "localcloud", "tasks", "--port", "0", *more) as tasks,
        grpc.aio.insecure_channel(tasks.address) as channel,
    ):
        await make_queue(channel, QUEUE, paused=True)
        names: list[str] = []
        for size in sizes:
            names += await fill(channel, size - len(names))
            memory.append(tasks.process.memory_info().rss)
            spread = names[:: max(1, len(names) // 100)]
            first_page = types.ListTasksRequest.pb()(parent=QUEUE, page_size=20)
            list_tasks = raw(channel, f"{SERVICE}/ListTasks")
            page = types.ListTasksResponse.pb().FromString(await list_tasks(first_page.SerializeToString()))
            next_page = types.ListTasksRequest.pb()(
                parent=QUEUE, page_size=20, page_token=page.next_page_token
            ).SerializeToString()
            made = creations(calls)
            made_names = [types.CreateTaskRequest.pb().FromString(request).task.name for request in made]
            plans: dict[str, tuple[str, list[bytes]]] = {
                "GetTask": ("GetTask", reads(calls, spread)),
                "ListTasks, 20": ("ListTasks", [next_page] * (calls // 10)),
                "CreateTask": ("CreateTask", made),
                "DeleteTask": ("DeleteTask", deletions(made_names)),
            }
            for label, (method, requests) in plans.items():
                call = raw(channel, f"{SERVICE}/{method}")
                costs.setdefault(label, []).append((await speed(call, requests, tasks, at_once=16)).cpu_us)
    where = "on disk" if data else "in memory"
    print(f"\n{where}: processor time per call with {sizes[0]} and {sizes[1]} tasks")
    for label, (few, many) in costs.items():
        print(f"  {label:<14} {few:6.0f} µs → {many:6.0f} µs: × {many / few:.2f}")
    print(f"  memory per task {(memory[1] - memory[0]) / (sizes[1] - sizes[0]):.0f} bytes (body {len(BODY)})")


async def dispatching(number: int, queues: int) -> None:
    """Tasks per second that reach a worker, all due at once, from queues that allow 500 a second each."""
    async with (
        child("-c", WORKER) as worker,
        child("-m", "localcloud", "tasks", "--port", "0") as tasks,
        grpc.aio.insecure_channel(tasks.address) as channel,
    ):
        names = [f"{LOCATION}/queues/q{index}" for index in range(queues)]
        for name in names:
            await make_queue(channel, name, paused=True)
        create = raw(channel, f"{SERVICE}/BatchCreateTasks")
        for batch in batched(number, 100):
            for name in names:
                request = types.BatchCreateTasksRequest.pb()(parent=name)
                for _ in batch:
                    one = request.requests.add(parent=name)
                    one.task.http_request.url = worker.address
                    one.task.http_request.http_method = 2
                await create(request.SerializeToString())
        resume, left = raw(channel, f"{SERVICE}/ResumeQueue"), raw(channel, f"{SERVICE}/ListTasks")
        cpu, start = tasks.cpu(), time.perf_counter()
        for name in names:
            await resume(types.ResumeQueueRequest.pb()(name=name).SerializeToString())
        for name in names:
            one = types.ListTasksRequest.pb()(parent=name, page_size=1).SerializeToString()
            while await left(one):  # noqa: ASYNC110  the server tells nobody
                await asyncio.sleep(0.05)
        seconds = time.perf_counter() - start
        total = number * queues
        print(
            f"\ndispatched {total} tasks of {queues} queues at {total / seconds:.0f}/s "
            f"(allowed: {500 * queues}/s), {(tasks.cpu() - cpu) / total * 1e6:.0f} µs each"
        )


def batched(number: int, size: int) -> Iterator[range]:
    for start in range(0, number, size):
        yield range(start, min(start + size, number))


async def measure(asked: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="localcloud-bench-") as directory:
        if asked.only in (None, "echo"):
            for data in (None, f"{directory}/echo"):
                await against_echo(asked.calls, asked.rounds, asked.at_once, data)
        if asked.only in (None, "size"):
            for data in (None, f"{directory}/size"):
                await against_size((100, asked.tasks), asked.calls, data)
        if asked.only in (None, "dispatch"):
            await dispatching(asked.dispatches, 1)
            await dispatching(asked.dispatches, 4)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.bench_localcloud_tasks", description=__doc__)
    parser.add_argument("--calls", type=int, default=3000, help="per measurement")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--at-once", type=int, default=64)
    parser.add_argument("--tasks", type=int, default=100_000, help="in the large queue")
    parser.add_argument("--dispatches", type=int, default=2000, help="per queue")
    parser.add_argument("--only", choices=["echo", "size", "dispatch"])
    asyncio.run(measure(parser.parse_args()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
