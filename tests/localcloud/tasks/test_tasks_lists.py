"""Lists: filters over any field of a queue, and pages that are whole whatever happens between them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio
from google.api_core import exceptions as google

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def three(cloud):
    await cloud.queue(
        "slow", rate_limits={"max_dispatches_per_second": 0.5}, http_target={"http_method": "PUT"}
    )
    await cloud.queue("quick", rate_limits={"max_concurrent_dispatches": 7})
    await cloud.queue("stopped", retry_config={"max_attempts": 3, "max_backoff": timedelta(seconds=90)})
    await cloud.client.pause_queue(name=cloud.queue_name("stopped"))
    await cloud.client.purge_queue(name=cloud.queue_name("stopped"))
    return cloud


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("state: PAUSED", "stopped"),
        ("state=RUNNING", "quick slow"),
        ('state != "RUNNING"', "stopped"),
        ("rate_limits.max_dispatches_per_second < 1", "slow"),
        ("rateLimits.maxDispatchesPerSecond >= 500", "quick stopped"),
        ("retry_config.max_attempts = 3", "stopped"),
        ("retry_config.max_backoff <= 90s", "stopped"),
        ('purge_time > "2020-01-01T00:00:00Z"', "stopped"),
        ("purge_time:*", "stopped"),
        ("NOT purge_time:*", "quick slow"),
        ("http_target.http_method = PUT", "slow"),
        ("name:quick", "quick"),
        ("state=RUNNING AND rate_limits.max_concurrent_dispatches=7", "quick"),
        ("state=RUNNING rate_limits.max_concurrent_dispatches=7", "quick"),
        ("(state=PAUSED OR name:slow) AND NOT name:stopped", "slow"),
        ("", "quick slow stopped"),
    ],
)
async def test_filter_means(three, text, expected):
    parent = three.queue_name().split("/queues/")[0]
    listed = await three.client.list_queues(request={"parent": parent, "filter": text})
    assert " ".join([queue.name.rsplit("/", 1)[1] async for queue in listed]) == expected


@pytest.mark.parametrize(
    "text",
    [
        "state",
        "state=",
        "=PAUSED",
        "state=ASLEEP",
        "colour=red",
        "(state=PAUSED",
        "state=PAUSED)",
        "state ~ x",
        "rate_limits.max_concurrent_dispatches=many",
        "purge_time > yesterday",
        "rate_limits > 1",
        '"',
        "NOT",
    ],
)
async def test_senseless_filter_is_refused(three, text):
    parent = three.queue_name().split("/queues/")[0]
    with pytest.raises(google.InvalidArgument):
        await three.client.list_queues(request={"parent": parent, "filter": text})


async def test_pages_have_no_gap_when_tasks_come_and_go_between_them(cloud):
    await cloud.queue()
    later = datetime.now(UTC) + timedelta(days=1)
    made = [(await cloud.task(f"t{number}", schedule_time=later)).name for number in range(30)]
    request = {"parent": cloud.queue_name(), "page_size": 10}
    page = await cloud.client.list_tasks(request=request)
    first = [task.name for task in page.tasks]
    for name in [*made[5:10], made[12]]:
        await cloud.client.delete_task(name=name)
    new = (await cloud.task("new", schedule_time=later)).name
    rest = await cloud.client.list_tasks(request={**request, "page_token": page.next_page_token})
    assert first == made[:10]
    assert [task.name async for task in rest] == [*made[10:12], *made[13:], new]


async def test_page_of_large_tasks_fits_into_one_message(cloud):
    await cloud.queue()
    later = datetime.now(UTC) + timedelta(days=1)
    for _ in range(8):
        await cloud.task(schedule_time=later, request={"body": b"x" * 900_000})
    page = await cloud.client.list_tasks(request={"parent": cloud.queue_name(), "response_view": 2})
    assert len(page.tasks) < 8
    assert len([task async for task in page]) == 8
