"""Several processes, and processes that die: never a slot too many, never a shot lost."""

from __future__ import annotations

import asyncio
from typing import Any

from localcloud.environment import equal_keys
from tests.flows.embedded import embedded

SHORT_LEASES = {"GEMINI_TIMEOUT_SECONDS": "2", "LEASE_SECONDS": "2.5", "UPLOAD_SECONDS": "1"}


def within_limits(stats: dict[str, Any]) -> bool:
    return all(key["maxConcurrency"] <= key["maxConcurrent"] for key in stats["keys"].values())


async def test_two_generate_processes_never_exceed_a_keys_concurrency() -> None:
    """A-221. Both processes want every slot; what happened is read from the fake Gemini's own books."""
    async with embedded(generate_workers=2, keys=equal_keys(3, 2), latency=0.15) as system:
        ids = [await system.submit(count=12, prompt=f"task {number}") for number in range(4)]
        tasks = await asyncio.gather(*(system.wait_final(task_id) for task_id in ids))
        assert [task["status"] for task in tasks] == ["completed"] * 4
        stats = await system.stats()
        assert stats["total"]["calls"] == 48
        assert stats["total"]["errors"] == {}
        assert within_limits(stats)
        assert all(key["maxConcurrency"] == 2 for key in stats["keys"].values())
        workers = {
            line["pid"] for line in system.log_lines("generate") if line["message"] == "shot.generated"
        }
        assert len(workers) == 2


async def test_a_generate_process_killed_while_it_draws_costs_time_and_nothing_else() -> None:
    async with embedded(keys=equal_keys(2, 2), latency=1.0, settings=SHORT_LEASES) as system:
        task_id = await system.submit(count=8, prompt="killed")
        async with asyncio.timeout(20):
            while (await system.stats())["total"]["concurrency"] < 4:
                await asyncio.sleep(0.05)
        await system.supervisor.kill("generate")
        await system.supervisor.restart("generate")
        task = await system.wait_final(task_id, seconds=60)
        assert task["status"] == "completed"
        assert {shot["status"] for shot in task["shots"]} == {"completed"}
        stats = await system.stats()
        assert within_limits(stats)
        # Only what was being drawn when the process died was drawn twice.
        assert stats["total"]["calls"] <= 8 + 4
        callbacks = await system.wait_callbacks(task_id, 9)
        assert len({callback["webhookId"] for callback in callbacks}) == 9


async def test_a_dead_entry_and_a_dead_complete_lose_nothing() -> None:
    async with embedded(latency=0.3, sweep_seconds=1) as system:
        task_id = await system.submit(count=6, prompt="complete dies")
        await system.supervisor.kill("complete")
        await asyncio.sleep(1)
        await system.supervisor.restart("complete")
        task = await system.wait_final(task_id, seconds=60)
        assert task["status"] == "completed"
        callbacks = await system.wait_callbacks(task_id, 7)
        finals = {c["webhookId"] for c in callbacks if c["body"]["eventType"] == "task.completed"}
        assert len(finals) == 1
