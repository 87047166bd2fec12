"""A release is replaced by the next one while its tasks are in flight, as docs/operations.md describes it."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from localcloud.environment import LOCATION, PROJECT, local_key
from localcloud.queues import tasks_client
from localcloud.supervisor import FUNCTIONS
from scripts.package import SHIPPED
from tests.flows.embedded import System, embedded
from tests.infra.conftest import ROOT

KEYS = (local_key(1, max_concurrent=2),)
"""So few slots that Cloud Tasks still holds back some of the shots when the queue is paused."""
SHORT = {"GEMINI_TIMEOUT_SECONDS": "2", "LEASE_SECONDS": "2.5", "UPLOAD_SECONDS": "1"}


async def test_a_new_release_takes_over_the_tasks_of_the_old(tmp_path: Path) -> None:
    present = tmp_path / "present"
    present.symlink_to(_release(tmp_path, "a"))
    async with embedded(source=present, keys=KEYS, latency=0.3, settings=SHORT) as system:
        drained = await system.submit(count=12)
        await _until_drawing(system, is_drawing=True)
        await _drain(system)
        at_rest = (await system.stats())["total"]["calls"]
        assert 0 < at_rest < 12

        present.unlink()
        present.symlink_to(_release(tmp_path, "b"))
        await asyncio.gather(*(system.supervisor.restart(function) for function in FUNCTIONS))
        await _resume(system)

        task = await system.wait_final(drained)
        assert (task["status"], len(task["results"])) == ("completed", 12)
        assert (await system.stats())["total"]["calls"] == 12, "after a drain nothing is drawn twice"
        assert "release b" in (system.supervisor.logs / "generate.log").read_text()

        # And without a drain, in the middle of drawing: what was interrupted is drawn again, the rest is not.
        hurried = await system.submit(count=5)
        await _until_drawing(system, is_drawing=True)
        await system.supervisor.restart("generate")
        task = await system.wait_final(hurried)
        assert (task["status"], len(task["results"])) == ("completed", 5)


def _release(folder: Path, name: str) -> Path:
    """A copy of what ships, which says its name when it starts."""
    release = folder / name
    release.mkdir()
    for part in SHIPPED:
        (shutil.copytree if (ROOT / part).is_dir() else shutil.copy)(ROOT / part, release / part)
    main = release / "main.py"
    main.write_text(f'{main.read_text()}\nprint("release {name}", flush=True)\n')
    return release


async def _until_drawing(system: System, *, is_drawing: bool) -> None:
    """The same at several looks: between two shots of a slot there is a moment without a call."""
    seen = 0
    async with asyncio.timeout(20):
        while seen < (1 if is_drawing else 8):
            calls = (await system.stats())["total"]["concurrency"]
            seen = seen + 1 if bool(calls) == is_drawing else 0
            await asyncio.sleep(0.05)


async def _drain(system: System) -> None:
    """Nothing new is begun; what has begun ends."""
    async with tasks_client(system.addresses.tasks) as client:
        await client.pause_queue(name=client.queue_path(PROJECT, LOCATION, "generate"))
    await _until_drawing(system, is_drawing=False)


async def _resume(system: System) -> None:
    async with tasks_client(system.addresses.tasks) as client:
        await client.resume_queue(name=client.queue_path(PROJECT, LOCATION, "generate"))
