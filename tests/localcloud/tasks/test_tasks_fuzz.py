"""No input, however odd, brings the process down or disturbs another queue."""

from __future__ import annotations

import asyncio
import contextlib
import random

import grpc
import grpc.aio
import pytest
from google.cloud.tasks_v2 import types

pytestmark = pytest.mark.asyncio(loop_scope="module")

SERVICE = "/google.cloud.tasks.v2.CloudTasks"
METHODS = {
    name.removesuffix("Request"): getattr(types, name).pb()
    for name in types.__all__
    if name.endswith("Request") and name not in ("HttpRequest", "AppEngineHttpRequest")
}
TEXTS = [
    "",
    "q",
    "/",
    "//",
    "\x00",
    "\ud7ff\U0010ffff",
    "é" * 50,
    "a" * 5000,
    "http://",
    "http://[",
    "http://h:99999999999999999999/",
    "https://xn--a/",
    "%s%n{}",
    "projects/p/locations/asia-east1",
    "projects/p/locations/asia-east1/queues/odd",
    "projects/p/locations/asia-east1/queues/odd/tasks/t",
    "projects/p/locations/asia-east1/queues/odd/tasks/",
    "projects/p/locations/asia-east1/queues/fine/tasks/t",
    "http://127.0.0.1:1/x?y#z",
    "state=RUNNING AND (((",
    "NOT " * 500 + "state=PAUSED",
    "rate_limits.max_dispatches_per_second > 1e308",
    "MTA=",
    "rate_limits",
    "http_target.header_overrides",
    "a@b",
    "Host",
    "bad name\r\nX: y",
]
NUMBERS = [0, 1, -1, 2, 14, 15, 501, 5001, 2**31 - 1, -(2**31)]
LONGS = [*NUMBERS, 2**63 - 1, -(2**63), 253402300800, -62135596801, 1_000_000_000]
DOUBLES = [0.0, -0.0, 1.0, 0.5, -1.0, 1e-300, 1e308, float("inf"), float("-inf"), float("nan")]


def scramble(message, chance, depth=0):
    """Fill a message with odd values of the right types."""
    for field in message.DESCRIPTOR.fields:
        if chance.random() < 0.35 or depth > 5:
            continue
        if field.is_repeated and field.message_type and field.message_type.GetOptions().map_entry:
            if field.message_type.fields_by_name["value"].type == field.TYPE_STRING:
                getattr(message, field.name)[chance.choice(TEXTS)] = chance.choice(TEXTS)
        elif field.is_repeated:
            values = getattr(message, field.name)
            for _ in range(chance.randrange(3)):
                if field.message_type:
                    scramble(values.add(), chance, depth + 1)
                else:
                    values.append(chance.choice(TEXTS))
        elif field.message_type:
            inner = getattr(message, field.name)
            inner.SetInParent()
            scramble(inner, chance, depth + 1)
        else:
            setattr(message, field.name, value_of(field, chance))
    return message


def value_of(field, chance):
    if field.type == field.TYPE_STRING:
        return chance.choice(TEXTS)
    if field.type == field.TYPE_BYTES:
        return chance.choice([b"", b"\x00\xff", b"x" * 20_000])
    if field.type == field.TYPE_DOUBLE:
        return chance.choice(DOUBLES)
    return chance.choice(LONGS if field.type == field.TYPE_INT64 else NUMBERS)


@contextlib.asynccontextmanager
async def channel_to(cloud):
    async with grpc.aio.insecure_channel(f"127.0.0.1:{cloud.running.port}") as channel:
        yield channel


async def code_of(channel, method, request):
    try:
        await channel.unary_unary(f"{SERVICE}/{method}")(request, timeout=10)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


async def still_well(cloud, worker, before):
    """The other queue goes on, and the service answers."""
    await cloud.task("after", queue="fine")
    await worker.until(before + 1)
    assert (await cloud.client.get_queue(name=cloud.queue_name("fine"))).name


@pytest.mark.parametrize("seed", range(4))
async def test_odd_fields_are_answered_and_harm_nobody(cloud, worker, seed, caplog):
    await cloud.queue("fine")
    await cloud.queue("odd")
    chance = random.Random(seed)
    seen = {}
    async with channel_to(cloud) as channel:
        for _ in range(25):
            for method, request in METHODS.items():
                message = scramble(request(), chance).SerializeToString()
                seen.setdefault(await code_of(channel, method, message), (method, message))
    assert grpc.StatusCode.INTERNAL not in seen, seen[grpc.StatusCode.INTERNAL]
    assert grpc.StatusCode.UNKNOWN not in seen, seen[grpc.StatusCode.UNKNOWN]
    assert grpc.StatusCode.INVALID_ARGUMENT in seen
    assert "failed" not in caplog.text
    with contextlib.suppress(Exception):  # it may have been deleted or created again, and paused
        await cloud.client.delete_queue(name=cloud.queue_name("odd"))
    await cloud.client.resume_queue(name=cloud.queue_name("fine"))
    await still_well(cloud, worker, len(worker.calls))


async def test_noise_is_refused_and_harms_nobody(cloud, worker):
    await cloud.queue("fine")
    chance = random.Random(1)
    async with channel_to(cloud) as channel:
        for method in METHODS:
            for size in (1, 7, 100, 3000):
                code = await code_of(channel, method, chance.randbytes(size))
                assert code is not grpc.StatusCode.OK
        huge = types.CreateTaskRequest.pb()(parent=cloud.queue_name("fine"))
        huge.task.http_request.body = b"x" * 20_000_000
        assert await code_of(channel, "CreateTask", huge.SerializeToString()) is (
            grpc.StatusCode.RESOURCE_EXHAUSTED
        )
    reader, writer = await asyncio.open_connection("127.0.0.1", cloud.running.port)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + chance.randbytes(2000))
    await writer.drain()
    await reader.read(10)
    writer.close()
    await still_well(cloud, worker, 0)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 100_000 + b"\r\n",
        b"HTTP/1.1 503 No\r\nRetry-After: 99999999999999999999\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 50,
    ],
)
async def test_workers_that_speak_no_http_are_failed_attempts(cloud, worker, retries, answer):
    async def speak(reader, writer):
        with contextlib.suppress(OSError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(speak, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    await cloud.queue("fine")
    await cloud.queue("odd", retry_config=retries(max_attempts=2))
    odd = await cloud.task(queue="odd", url=f"http://127.0.0.1:{port}/")
    await still_well(cloud, worker, 0)
    if b"Retry-After" not in answer:
        await cloud.gone(odd.name)
    server.close()


async def test_a_queue_whose_worker_hangs_does_not_hold_another(cloud, worker):
    hanging = asyncio.Event()

    async def hang(reader, writer):
        hanging.set()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    await cloud.queue("fine")
    await cloud.queue("odd")
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    await asyncio.gather(*(cloud.task(queue="odd", url=url) for _ in range(100)))
    await hanging.wait()
    await still_well(cloud, worker, 0)
    server.close()


async def test_methods_of_other_services_are_refused_by_name(cloud):
    async with channel_to(cloud) as channel:
        for method in ("/a.b.C/D", "/google.cloud.tasks.v2.CloudTasks/", "/x/" + "y" * 500):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await channel.unary_unary(method)(b"\x00")
            assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
            assert method.strip("/") in caught.value.details()
