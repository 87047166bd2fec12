"""What a client can do with queues, through Google's own library."""

from __future__ import annotations

from datetime import timedelta

import pytest
from google.api_core import exceptions as google
from google.cloud import tasks_v2
from google.protobuf import duration_pb2, field_mask_pb2

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_new_queue_has_googles_defaults(cloud):
    await cloud.queue()
    queue = await cloud.client.get_queue(name=cloud.queue_name())
    assert queue.state == tasks_v2.Queue.State.RUNNING
    assert queue.rate_limits.max_dispatches_per_second == 500
    assert queue.rate_limits.max_burst_size == 100
    assert queue.rate_limits.max_concurrent_dispatches == 1000
    assert queue.retry_config.max_attempts == 100
    assert queue.retry_config.min_backoff == timedelta(milliseconds=100)
    assert queue.retry_config.max_backoff == timedelta(hours=1)
    assert queue.retry_config.max_doublings == 16


async def test_update_changes_what_the_mask_names_and_nothing_else(cloud):
    await cloud.queue(rate_limits={"max_dispatches_per_second": 5, "max_concurrent_dispatches": 7})
    updated = await cloud.client.update_queue(
        queue=tasks_v2.Queue(
            name=cloud.queue_name(),
            rate_limits={"max_dispatches_per_second": 9, "max_concurrent_dispatches": 1},
            retry_config={"max_attempts": 3},
        ),
        update_mask=field_mask_pb2.FieldMask(paths=["rate_limits.max_dispatches_per_second"]),
    )
    assert updated.rate_limits.max_dispatches_per_second == 9
    assert updated.rate_limits.max_concurrent_dispatches == 7
    assert updated.retry_config.max_attempts == 100


async def test_update_without_a_mask_sets_everything_and_keeps_the_state(cloud):
    await cloud.queue(rate_limits={"max_dispatches_per_second": 5})
    await cloud.client.pause_queue(name=cloud.queue_name())
    updated = await cloud.client.update_queue(
        queue=tasks_v2.Queue(name=cloud.queue_name(), retry_config={"max_attempts": 3})
    )
    assert updated.rate_limits.max_dispatches_per_second == 500
    assert updated.retry_config.max_attempts == 3
    assert updated.state == tasks_v2.Queue.State.PAUSED


async def test_update_of_a_missing_queue_makes_it(cloud):
    await cloud.client.update_queue(queue=tasks_v2.Queue(name=cloud.queue_name()))
    assert (await cloud.client.get_queue(name=cloud.queue_name())).name == cloud.queue_name()


async def test_queues_are_listed_in_pages_and_by_state(cloud):
    for name in "abcde":
        await cloud.queue(name)
    await cloud.client.pause_queue(name=cloud.queue_name("c"))
    location = cloud.queue_name().split("/queues/")[0]
    pager = await cloud.client.list_queues(request={"parent": location, "page_size": 2})
    pages = [[queue.name[-1] for queue in page.queues] async for page in pager.pages]
    assert pages == [["a", "b"], ["c", "d"], ["e"]]
    paused = await cloud.client.list_queues(request={"parent": location, "filter": "state: PAUSED"})
    assert [queue.name[-1] async for queue in paused] == ["c"]


@pytest.mark.parametrize(
    "settings",
    [
        {"rate_limits": {"max_dispatches_per_second": 501}},
        {"rate_limits": {"max_dispatches_per_second": -1}},
        {"rate_limits": {"max_dispatches_per_second": float("nan")}},
        {"rate_limits": {"max_concurrent_dispatches": 5001}},
        {"retry_config": {"max_attempts": -2}},
        {"retry_config": {"max_doublings": -1}},
        {
            "retry_config": {
                "min_backoff": duration_pb2.Duration(seconds=9),
                "max_backoff": duration_pb2.Duration(seconds=1),
            }
        },
        {"retry_config": {"min_backoff": duration_pb2.Duration(seconds=-9)}},
        {"stackdriver_logging_config": {"sampling_ratio": 2}},
    ],
)
async def test_settings_out_of_range_are_refused(cloud, settings):
    with pytest.raises(google.InvalidArgument):
        await cloud.queue(**settings)
    with pytest.raises(google.NotFound):
        await cloud.client.get_queue(name=cloud.queue_name())


async def test_deleted_queue_takes_its_tasks_with_it(cloud, worker):
    await cloud.queue()
    await cloud.client.pause_queue(name=cloud.queue_name())
    task = await cloud.task()
    await cloud.client.delete_queue(name=cloud.queue_name())
    with pytest.raises(google.NotFound):
        await cloud.client.get_task(name=task.name)
    with pytest.raises(google.NotFound):
        await cloud.task()
