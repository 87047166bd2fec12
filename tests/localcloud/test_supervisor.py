"""The supervisor starts everything, tells of what dies, and leaves nothing behind.

The functions here are stand-ins of three lines: what is tested is the care for processes, not what they do.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import grpc.aio
import httpx2
import psutil
import pytest
import pytest_asyncio
from google.cloud import tasks_v2
from google.cloud.tasks_v2.services.cloud_tasks.transports import CloudTasksGrpcAsyncIOTransport

from localcloud.child import ChildDied
from localcloud.environment import LOCATION, PROJECT
from localcloud.faults import Rule
from localcloud.supervisor import FUNCTIONS, PROJECT_ROOT, Options, StartFailed, Supervisor

STAND_IN = """
import os

import functions_framework.aio
from starlette.responses import JSONResponse


async def answer(request):
    return JSONResponse({"target": os.environ["FUNCTION_TARGET"], "url": os.environ["GENERATE_URL"]})


@functions_framework.aio.http
async def entry(request):
    return await answer(request)


@functions_framework.aio.http
async def generate(request):
    return await answer(request)


@functions_framework.aio.http
async def complete(request):
    return await answer(request)
"""


pytestmark = pytest.mark.asyncio(loop_scope="module")


def stand_ins(directory: Path) -> Options:
    source = directory / "source"
    source.mkdir()
    (source / "main.py").write_text(STAND_IN)
    return Options(source=source, state=directory / "state", generate_workers=2)


@pytest.fixture
def options(tmp_path: Path) -> Options:
    return stand_ins(tmp_path)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def system(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Supervisor]:
    """One system for the tests that leave it as they found it, and at the end the proof that it went away."""
    async with Supervisor(stand_ins(tmp_path_factory.mktemp("system"))) as running:
        yield running
        everything = family(*running.pids.values())
    assert still_running(everything) == []


def family(*pids: int) -> list[psutil.Process]:
    """These processes and all that came of them."""
    leaders = [psutil.Process(pid) for pid in pids]
    return [*leaders, *(child for leader in leaders for child in leader.children(recursive=True))]


def still_running(processes: list[psutil.Process], seconds: float = 10) -> list[psutil.Process]:
    # A zombie has ended; that nobody has asked for its code yet is its new parent's affair.
    _, alive = psutil.wait_procs(
        [p for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE], seconds
    )
    return alive


async def test_each_function_runs_its_own_target_and_knows_the_others(system: Supervisor) -> None:
    assert set(system.pids) == {"database", "providers", *FUNCTIONS}
    for name, url in system.urls.items():
        told = (await system.http.get(url)).json()
        assert told["target"] == name
        assert told["url"] == system.urls["generate"]


async def test_generate_has_the_workers_that_were_asked_for(system: Supervisor) -> None:
    workers: dict[str, int] = {}
    for _ in range(100):
        masters = {name: psutil.Process(system.pids[name]).children()[0] for name in FUNCTIONS}
        workers = {name: len(master.children()) for name, master in masters.items()}
        if workers["generate"] == 2:
            break
        await asyncio.sleep(0.05)  # the first worker answers before the second is there
    assert workers == {"entry": 1, "generate": 2, "complete": 1}


async def test_generate_queue_lets_in_a_few_more_than_there_are_slots(system: Supervisor) -> None:
    async with grpc.aio.insecure_channel(system.addresses.tasks) as channel:
        client = tasks_v2.CloudTasksAsyncClient(transport=CloudTasksGrpcAsyncIOTransport(channel=channel))
        queue = await client.get_queue(name=client.queue_path(PROJECT, LOCATION, "generate"))
    # Eleven slots in the seed's pool: half as many again, and four.
    assert queue.rate_limits.max_concurrent_dispatches == 21


async def test_killed_function_is_gone_with_its_workers_and_returns_on_the_same_port(
    system: Supervisor,
) -> None:
    url = system.urls["generate"]
    before = family(system.pids["generate"])
    await system.kill("generate")
    assert still_running(before) == []
    assert "generate" not in system.pids
    with pytest.raises(httpx2.TransportError):
        await system.http.get(url)
    system.check()  # nobody is blamed for an end that was asked for
    await system.restart("generate")
    assert (await system.http.get(url)).json()["target"] == "generate"


async def test_faults_of_each_service_are_set_and_cleared_over_http(system: Supervisor) -> None:
    for name in system.services:
        service = system.service(name)
        await service.misbehave(Rule(operation="nothing-that-exists", error="500"))
        assert [rule.operation for rule in await service.faults()] == ["nothing-that-exists"]
        await service.behave()
        assert await service.faults() == []


async def test_fault_set_over_http_is_in_force_and_calls_are_counted(system: Supervisor) -> None:
    wechat, photo = system.service("wechat"), f"{system.addresses.wechat}/sample.jpg"
    await wechat.count_anew()
    await wechat.misbehave(Rule(operation="download", error="disconnect", times=1))
    with pytest.raises(httpx2.TransportError):
        await system.http.get(photo)
    assert (await system.http.get(photo)).status_code == 200
    assert (await wechat.counts())["calls"] == {"download": 2}
    await wechat.behave()


async def test_cloud_can_run_in_the_loop_of_its_caller(options: Options) -> None:
    async with Supervisor(replace(options, in_process=True, functions=())) as system:
        assert system.pids == {}
        assert (await system.http.get(f"{system.addresses.gemini}/stats")).status_code == 200


async def test_function_that_cannot_start_is_named_with_the_end_of_its_log(options: Options) -> None:
    (options.source / "main.py").write_text("raise SystemExit('CALLBACK_SECRET is missing')")
    supervisor = Supervisor(options)
    with pytest.raises(ChildDied, match=r"(?s)(entry|generate|complete).*CALLBACK_SECRET is missing"):
        async with supervisor:
            pass
    assert supervisor.pids == {}


async def test_function_that_answers_with_an_error_does_not_count_as_started(options: Options) -> None:
    broken = STAND_IN.replace('return JSONResponse({"target"', 'raise OSError("no");  ({"target"')
    (options.source / "main.py").write_text(broken)
    with pytest.raises(StartFailed, match="500"):
        async with Supervisor(options):
            pass


async def test_child_that_dies_is_reported_and_not_restarted(options: Options) -> None:
    async with Supervisor(options) as system:
        watching = asyncio.create_task(system.watch())
        await asyncio.sleep(0)
        os.kill(system.pids["complete"], signal.SIGKILL)
        with pytest.raises(ChildDied, match="complete"):
            await asyncio.wait_for(watching, 5)
        assert "complete" not in system.pids


RUN_FOR_EVER = """
import asyncio, json, sys
from pathlib import Path
from localcloud.supervisor import Options, Supervisor

async def main():
    async with Supervisor(Options(source=Path(sys.argv[1]), state=Path(sys.argv[2]))) as system:
        print(json.dumps(list(system.pids.values())), flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_kill_9_of_the_supervisor_leaves_no_process(options: Options) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        RUN_FOR_EVER,
        str(options.source),
        str(options.state),
        cwd=PROJECT_ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    everything = family(*json.loads(await process.stdout.readline()))
    assert len(everything) == 2 * 2 + 3 * 3  # each with its leash; of each function a master and a worker
    process.kill()
    await process.wait()
    assert still_running(everything) == []


@pytest.mark.parametrize(
    ("ending", "seconds"),
    [
        (signal.SIGINT, 0.5),  # the cloud is starting
        (signal.SIGTERM, 1.5),  # the functions are starting
        (signal.SIGINT, 4.0),  # everything runs
    ],
)
async def test_ending_the_command_at_any_moment_leaves_no_process(
    ending: signal.Signals, seconds: float, tmp_path: Path
) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "localcloud",
        "--state",
        str(tmp_path),
        "up",
        cwd=PROJECT_ROOT,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        # A shell lets what it starts in the background ignore Ctrl-C, and so would everything from there on.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    seen: dict[int, psutil.Process] = {}
    leader = psutil.Process(process.pid)
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while loop.time() < end:
        seen |= {child.pid: child for child in leader.children(recursive=True)}
        await asyncio.sleep(0.05)
    process.send_signal(ending)
    try:
        assert await asyncio.wait_for(process.wait(), 15) != 0
    except TimeoutError:
        process.kill()  # and the leashes end the rest
        raise
    assert still_running(list(seen.values())) == []
