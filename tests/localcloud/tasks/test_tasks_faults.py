"""What goes wrong on request, and what is counted."""

from __future__ import annotations

import pytest
from google.api_core import exceptions as google

from localcloud.faults import Rule

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_duplicate_delivers_twice_and_counts_as_one_attempt(cloud, worker):
    cloud.running.faults.add(Rule(operation="dispatch:q", error="duplicate", times=1))
    await cloud.queue()
    task = await cloud.task()
    calls = await worker.until(2)
    await cloud.gone(task.name)
    assert [call.headers["x-cloudtasks-taskretrycount"] for call in calls] == ["0", "0"]


async def test_lost_answer_is_delivered_and_then_retried(cloud, worker, retries):
    cloud.running.faults.add(Rule(operation="dispatch:q", error="lose_answer", times=1))
    await cloud.queue(retry_config=retries())
    await cloud.task()
    calls = await worker.until(2)
    assert [call.headers["x-cloudtasks-taskretrycount"] for call in calls] == ["0", "1"]


async def test_dropped_dispatch_never_connects_and_is_retried(cloud, worker, retries):
    cloud.running.faults.add(Rule(operation="dispatch:q", error="drop", times=1))
    await cloud.queue(retry_config=retries())
    await cloud.task()
    calls = await worker.until(1)
    assert [call.headers["x-cloudtasks-taskretrycount"] for call in calls] == ["1"]


async def test_rpc_faults_before_and_after_the_work(cloud, worker):
    await cloud.queue()
    cloud.running.faults.add(Rule(operation="CreateTask", error="UNAVAILABLE", times=1))
    with pytest.raises(google.ServiceUnavailable):
        await cloud.task("t")
    cloud.running.faults.add(Rule(operation="CreateTask", error="UNAVAILABLE", times=1, phase="after"))
    with pytest.raises(google.ServiceUnavailable):
        await cloud.task("t")
    with pytest.raises(google.AlreadyExists):
        await cloud.task("t")
    assert [call.task for call in await worker.until(1)] == ["t"]


async def test_counts_tell_calls_and_dispatches_and_can_be_reset(cloud, worker):
    await cloud.queue()
    task = await cloud.task()
    await worker.until(1)
    await cloud.gone(task.name)
    counts = cloud.running.counts.snapshot()
    assert counts["calls"]["CreateTask"] == 1
    assert counts["dispatches"] == {"q": 1}
    cloud.running.counts.reset()
    assert cloud.running.counts.snapshot() == {"calls": {}, "dispatches": {}}
