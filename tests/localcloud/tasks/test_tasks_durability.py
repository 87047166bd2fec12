"""What a data directory keeps: everything acknowledged, through kill -9 and through an orderly stop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
import sys
from datetime import UTC, datetime, timedelta

import pytest
from google.api_core import exceptions as google
from google.cloud import tasks_v2
from starlette.responses import Response

from localcloud.faults import Faults
from localcloud.tasks import start_tasks
from shared.clock import SystemClock

pytestmark = pytest.mark.asyncio(loop_scope="module")

LOCATION = "projects/p/locations/l"
QUEUE = f"{LOCATION}/queues/q"


@contextlib.asynccontextmanager
async def process(data):
    """The service as a process of its own; what it prints tells the ports."""
    running = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "localcloud.tasks",
        "--port",
        "0",
        "--data",
        str(data),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        line = (await running.stdout.readline()).decode()
        jwks = (await running.stdout.readline()).decode()
        yield running, int(line.rsplit(":", 1)[1]), jwks.strip().split("=", 1)[1]
    finally:
        if running.returncode is None:
            running.send_signal(signal.SIGTERM)
        await running.wait()
        running._transport.close()


async def test_nothing_acknowledged_is_lost_by_kill_9(tmp_path, worker, connect, retries):
    stuck = asyncio.Event()

    async def answer(call):
        if call.task == "under-way" and not stuck.is_set():
            stuck.set()
            await asyncio.sleep(30)
        return Response()

    worker.answer = answer
    request = tasks_v2.HttpRequest(url=worker.url, body=b"kept", headers={"X-Mine": "1"})
    async with process(tmp_path) as (running, port, _), connect(port) as client:
        await client.create_queue(
            parent=LOCATION, queue=tasks_v2.Queue(name=QUEUE, retry_config=retries(max_attempts=7))
        )

        async def create(name, **fields):
            task = tasks_v2.Task(name=f"{QUEUE}/tasks/{name}", http_request=request, **fields)
            return await client.create_task(parent=QUEUE, task=task)

        await create("done")
        await worker.until(1)
        await create("under-way")
        await stuck.wait()
        soon = datetime.now(UTC) + timedelta(seconds=1.5)
        await asyncio.gather(*(create(f"later-{n}", schedule_time=soon) for n in range(20)))
        os.kill(running.pid, signal.SIGKILL)
        await running.wait()
    before = len(worker.calls)
    async with process(tmp_path) as (_, port, _), connect(port) as client:
        calls = (await worker.until(before + 21))[before:]
        assert {call.task for call in calls} == {"under-way"} | {f"later-{n}" for n in range(20)}
        counted = {call.task: call.headers["x-cloudtasks-taskretrycount"] for call in calls}
        assert counted["under-way"] == "1"
        assert counted["later-0"] == "0"
        assert all(call.body == b"kept" and call.headers["x-mine"] == "1" for call in calls)
        assert (await client.get_queue(name=QUEUE)).retry_config.max_attempts == 7
        with pytest.raises(google.AlreadyExists):
            await client.create_task(
                parent=QUEUE, task=tasks_v2.Task(name=f"{QUEUE}/tasks/done", http_request=request)
            )


async def test_queue_state_purge_and_key_survive_a_restart(tmp_path, cloud_on):
    async with cloud_on(data=tmp_path) as cloud:
        await cloud.queue()
        await cloud.client.pause_queue(name=cloud.queue_name())
        await cloud.client.purge_queue(name=cloud.queue_name())
        token = {"service_account_email": "a@b.c", "scope": "s"}
        kept = await cloud.task("kept", request={"body": b"\x00\xff", "oauth_token": token})
        before = await cloud.client.get_queue(name=cloud.queue_name())
        key = (tmp_path / "oidc-key.pem").read_bytes()
    async with cloud_on(data=tmp_path) as cloud:
        assert await cloud.client.get_queue(name=cloud.queue_name()) == before
        task = await cloud.client.get_task(request={"name": kept.name, "response_view": 2})
        assert task.http_request.body == b"\x00\xff"
        assert task.http_request.oauth_token.scope == "s"
        assert (tmp_path / "oidc-key.pem").read_bytes() == key
        newer = await cloud.task("newer")
        listed = [task.name async for task in await cloud.client.list_tasks(parent=cloud.queue_name())]
        assert listed == [kept.name, newer.name]


async def test_second_process_on_the_same_directory_is_refused(tmp_path):
    first = await start_tasks(clock=SystemClock(), faults=Faults(), data=tmp_path)
    try:
        with pytest.raises(sqlite3.OperationalError):
            await start_tasks(clock=SystemClock(), faults=Faults(), data=tmp_path)
    finally:
        await first.stop()


async def test_stop_is_prompt_while_a_worker_hangs(cloud_on, worker):
    async def answer(call):
        await asyncio.sleep(30)
        return Response()

    worker.answer = answer
    async with asyncio.timeout(5):
        async with cloud_on() as cloud:
            await cloud.queue()
            await cloud.task()
            await worker.until(1)


async def test_taken_port_is_an_error_and_leaves_nothing_open(tmp_path):
    first = await start_tasks(clock=SystemClock(), faults=Faults())
    try:
        with pytest.raises(RuntimeError):
            await start_tasks(port=first.port, clock=SystemClock(), faults=Faults(), data=tmp_path)
    finally:
        await first.stop()
    again = await start_tasks(clock=SystemClock(), faults=Faults(), data=tmp_path)
    await again.stop()


async def test_every_acknowledged_task_runs_however_often_the_process_is_killed(
    tmp_path, worker, connect, retries
):
    """Killed in the midst of creating and dispatching, four times over."""
    acknowledged = set()

    async def create(client, life):
        number = 0
        with contextlib.suppress(google.GoogleAPICallError, asyncio.CancelledError):
            while True:
                name = f"t{life}-{number}"
                number += 1
                request = tasks_v2.HttpRequest(url=worker.url, body=name.encode())
                await client.create_task(
                    parent=QUEUE,
                    task=tasks_v2.Task(name=f"{QUEUE}/tasks/{name}", http_request=request),
                    timeout=5,
                )
                acknowledged.add(name)

    for life in range(4):
        async with process(tmp_path) as (running, port, _), connect(port) as client:
            if life == 0:
                queue = tasks_v2.Queue(name=QUEUE, retry_config=retries())
                await client.create_queue(parent=LOCATION, queue=queue)
            creating = [asyncio.ensure_future(create(client, f"{life}-{n}")) for n in range(4)]
            await worker.until(len(worker.calls) + 20 + 13 * life)
            os.kill(running.pid, signal.SIGKILL)
            await asyncio.gather(*creating)
    async with process(tmp_path) as (_, port, _), connect(port) as client:

        async def is_empty():
            return not [task async for task in await client.list_tasks(parent=QUEUE)]

        await eventually(is_empty)
    called = [call.task for call in worker.calls]
    assert acknowledged <= set(called)
    assert all(call.body == call.task.encode() for call in worker.calls)
    repeated = len(called) - len(set(called))
    assert repeated < len(called) / 2  # only what was under way is delivered again


async def eventually(claim):
    async with asyncio.timeout(10):
        while not await claim():
            await asyncio.sleep(0.02)
