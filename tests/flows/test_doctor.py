"""The doctor tells a healthy system from each kind of sick one."""

from __future__ import annotations

import pytest
from google.cloud import tasks_v2

from localcloud.environment import LOCATION, PROJECT
from localcloud.faults import Rule
from localcloud.queues import tasks_client
from localcloud.supervisor import StartFailed
from tests.flows.embedded import System


async def examined(system: System) -> dict[str, str]:
    """The findings: part → ok or WRONG."""
    try:
        told = await system.supervisor.run_admin("doctor", "--entry", system.entry)
    except StartFailed as error:
        told = str(error)
    lines = [line.split() for line in told.splitlines() if line.startswith(("ok", "WRONG"))]
    found = {}
    for line in told.splitlines():
        for word in ("ok", "WRONG"):
            if line.startswith(word + " "):
                found[line.removeprefix(word).strip().split("  ")[0]] = word
    assert len(found) == len(lines), told
    return found


async def test_a_healthy_system_is_right_in_every_part(system: System) -> None:
    told = await system.supervisor.run_admin("doctor", "--entry", system.entry)
    assert "WRONG" not in told
    for part in ("queue generate-bulk", "complete with a token", "key key4", "callback, forged", "cos"):
        assert part in told


async def test_each_sickness_is_found_where_it_is(system: System) -> None:
    async with tasks_client(system.addresses.tasks) as client:
        queue = client.queue_path(PROJECT, LOCATION, "events")
        await client.pause_queue(name=queue)
        await client.update_queue(
            queue=tasks_v2.Queue(
                name=client.queue_path(PROJECT, LOCATION, "complete"),
                rate_limits=tasks_v2.RateLimits(max_concurrent_dispatches=3),
            ),
            update_mask={"paths": ["rate_limits.max_concurrent_dispatches"]},
        )
        await system.misbehave("cos", Rule(operation="PutObject", error="503"))
        await system.misbehave("receiver", Rule(operation="callback", error="500"))
        await system.firestore.document("keys/key2").update({"maxConcurrent": 7})
        try:
            found = await examined(system)
        finally:
            await client.resume_queue(name=queue)
            await client.update_queue(
                queue=tasks_v2.Queue(
                    name=client.queue_path(PROJECT, LOCATION, "complete"),
                    rate_limits=tasks_v2.RateLimits(max_concurrent_dispatches=64),
                ),
                update_mask={"paths": ["rate_limits.max_concurrent_dispatches"]},
            )
            await system.supervisor.run_admin("keys", "sync")
    sick = {part for part, word in found.items() if word == "WRONG"}
    assert sick == {"queue events", "queue complete", "cos", "callback", "key pool"}


@pytest.mark.parametrize("part", ["firestore", "queries and indexes"])
async def test_a_silent_firestore_is_found(system: System, part: str) -> None:
    await system.misbehave("firestore", Rule(operation="*", error="PERMISSION_DENIED"))
    found = await examined(system)
    await system.behave()
    assert found[part] == "WRONG"
