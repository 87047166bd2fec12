"""Refusals in the real service's codes, sentences and details: programs look for them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import grpc
import pytest
from google.api_core import exceptions as google
from google.cloud import tasks_v2
from google.cloud.tasks_v2.services.cloud_tasks.transports import CloudTasksGrpcTransport
from google.protobuf import duration_pb2
from google.rpc import error_details_pb2

pytestmark = pytest.mark.asyncio(loop_scope="module")

NO_QUEUE = (
    "Queue does not exist. If you just created the queue, wait at least a minute for the queue to initialize."
)
NO_ENTITY = "Requested entity was not found."
TOO_RECENT = "The queue cannot be created because a queue with this name existed too recently."
GONE = (
    "The task no longer exists, though a task with this name existed recently. "
    "The task either successfully completed or was deleted."
)


async def refused(kind, call):
    with pytest.raises(kind) as caught:
        await call
    return caught.value


async def test_missing_queue(cloud):
    client, name = cloud.client, cloud.queue_name("never")
    for call in (
        client.get_queue(name=name),
        client.pause_queue(name=name),
        client.resume_queue(name=name),
        client.purge_queue(name=name),
        client.list_tasks(parent=name),
        cloud.task("t", queue="never"),
    ):
        assert (await refused(google.NotFound, call)).message == NO_QUEUE
    assert (await refused(google.NotFound, client.delete_queue(name=name))).message == NO_ENTITY


async def test_missing_and_gone_task(cloud):
    client = cloud.client
    await cloud.queue()
    await client.pause_queue(name=cloud.queue_name())
    never = f"{cloud.queue_name()}/tasks/never"
    for call in (client.get_task(name=never), client.delete_task(name=never), client.run_task(name=never)):
        assert (await refused(google.NotFound, call)).message == NO_ENTITY
    gone = await cloud.task("gone")
    assert (await refused(google.AlreadyExists, cloud.task("gone"))).message == (
        "Requested entity already exists"
    )
    await client.delete_task(name=gone.name)
    for call in (client.get_task(name=gone.name), client.run_task(name=gone.name)):
        assert (await refused(google.NotFound, call)).message == GONE
    again = await refused(google.AlreadyExists, cloud.task("gone"))
    assert again.message.startswith(
        "The task cannot be created because a task with this name existed too recently."
    )


async def test_name_of_a_deleted_queue_stays_taken_for_days(cloud_on, virtual, connect):
    async with cloud_on(clock=virtual) as cloud:
        await cloud.queue()
        assert (await refused(google.AlreadyExists, cloud.queue())).message == "Queue already exists"
        await cloud.client.delete_queue(name=cloud.queue_name())
        error = await refused(google.FailedPrecondition, cloud.queue())
        assert error.message == TOO_RECENT
        update = cloud.client.update_queue(queue=tasks_v2.Queue(name=cloud.queue_name()))
        assert (await refused(google.FailedPrecondition, update)).message == TOO_RECENT
        await virtual.run(timedelta(days=3, seconds=1).total_seconds())
        await cloud.queue()


async def test_deleted_queue_stays_taken_through_a_restart_unless_told_otherwise(cloud_on, tmp_path):
    async with cloud_on(data=tmp_path) as cloud:
        await cloud.queue()
        await cloud.client.delete_queue(name=cloud.queue_name())
    async with cloud_on(data=tmp_path) as cloud:
        await refused(google.FailedPrecondition, cloud.queue())
        cloud.running.reset()
        await cloud.queue()
    async with cloud_on(queue_name_taken_for=timedelta(0)) as cloud:
        await cloud.queue()
        await cloud.client.delete_queue(name=cloud.queue_name())
        await cloud.queue()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"rate_limits": {"max_dispatches_per_second": -1}},
            "RateLimits.maxDispatchesPerSecond cannot be negative.",
        ),
        (
            {"rate_limits": {"max_dispatches_per_second": 501}},
            "RateLimits.maxDispatchesPerSecond must be less than or equal to 500.",
        ),
        (
            {"rate_limits": {"max_concurrent_dispatches": -1}},
            "RateLimits.maxConcurrentDispatches cannot be negative.",
        ),
        (
            {"rate_limits": {"max_concurrent_dispatches": 5001}},
            "RateLimits.maxConcurrentDispatches must be less than or equal to 5000.",
        ),
        ({"retry_config": {"max_attempts": -2}}, "RetryConfig.maxAttempts must be greater or equal to -1."),
        ({"retry_config": {"max_doublings": -1}}, "RetryConfig.maxDoublings cannot be negative."),
        (
            {"retry_config": {"min_backoff": duration_pb2.Duration(seconds=-1)}},
            "RetryConfig.minBackoff cannot be negative.",
        ),
        (
            {
                "retry_config": {
                    "min_backoff": duration_pb2.Duration(seconds=2),
                    "max_backoff": duration_pb2.Duration(seconds=1),
                }
            },
            "RetryConfig.minBackoff must be less than or equal to RetryConfig.maxBackoff.",
        ),
    ],
)
async def test_settings_of_a_queue(cloud, settings, message):
    assert (await refused(google.InvalidArgument, cloud.queue(**settings))).message == message


async def test_output_only_burst_size_is_ignored(cloud):
    await cloud.queue(rate_limits={"max_burst_size": -1})
    queue = await cloud.client.get_queue(name=cloud.queue_name())
    assert queue.rate_limits.max_burst_size == 100


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"url": ""}, "HttpRequest.url is required."),
        ({"url": "example.com/path"}, "HttpTarget.url must start with 'http://' or 'https://'."),
        ({"url": "ftp://example.com/"}, "HttpTarget.url must start with 'http://' or 'https://'."),
        ({"body": b"x" * 1_100_000}, "Task size too large"),
    ],
)
async def test_requests_of_a_task(cloud, fields, message):
    await cloud.queue()
    task = tasks_v2.Task(http_request={"url": cloud.worker.url, **fields})
    call = cloud.client.create_task(parent=cloud.queue_name(), task=task)
    assert (await refused(google.InvalidArgument, call)).message == message


async def test_largest_task_is_a_mebibyte_as_it_is_stored(cloud):
    await cloud.queue()
    later = datetime.now(UTC) + timedelta(days=1)
    room = 1_048_569
    made = await cloud.task("s" * 20, schedule_time=later, request={"body": b"x" * 1_040_000})
    stored = await cloud.client.get_task(request={"name": made.name, "response_view": 2})
    stored.view = 0
    spare = room - tasks_v2.Task.pb(stored).ByteSize()
    await cloud.task("t" * 20, schedule_time=later, request={"body": b"x" * (1_040_000 + spare)})
    over = cloud.task("u" * 20, schedule_time=later, request={"body": b"x" * (1_040_001 + spare)})
    assert (await refused(google.InvalidArgument, over)).message == "Task size too large"


async def test_deadline_and_schedule_of_a_task(cloud):
    await cloud.queue()
    for seconds in (14, 1801):
        call = cloud.task(dispatch_deadline=duration_pb2.Duration(seconds=seconds))
        error = await refused(google.InvalidArgument, call)
        assert error.message == "Task.dispatchDeadline must be between [15s, 30m]."
    far = cloud.task(schedule_time=datetime(2100, 1, 1, tzinfo=UTC))
    assert (await refused(google.InvalidArgument, far)).message == (
        "The Task.scheduleTime, 2099-12-31T16:00:00-08:00, is too far in the future. "
        "Schedule time must be no more than 720h in the future."
    )


async def test_names_are_explained_with_a_link(cloud):
    await cloud.queue()
    error = await refused(google.InvalidArgument, cloud.client.get_queue(name="not-a-valid-queue-name"))
    assert error.message == (
        'Queue name must be formatted: "projects/<PROJECT_ID>/locations/<LOCATION_ID>/queues/<QUEUE_ID>".'
    )
    assert [link.description for link in help_of(error)] == ["Definition of queue name"]
    error = await refused(google.InvalidArgument, cloud.task("not a valid id"))
    assert error.message == (
        'Task ID "not a valid id" can contain only letters ([A-Za-z]), numbers ([0-9]), hyphens (-), or '
        "underscores (_). Task ID must between 1 and 500 characters."
    )
    assert [link.description for link in help_of(error)] == ["Definition of task ID"]
    other = tasks_v2.Task(name=f"{cloud.queue_name('other')}/tasks/t", http_request={"url": cloud.worker.url})
    error = await refused(
        google.InvalidArgument, cloud.client.create_task(parent=cloud.queue_name(), task=other)
    )
    assert error.message == (
        f"The queue name from request ('{cloud.queue_name()}') must be the same as the queue name in the "
        f"named task ('{cloud.queue_name('other')}')."
    )


def help_of(error):
    [detail] = error.details
    assert isinstance(detail, error_details_pb2.Help)
    return detail.links


async def test_headers_are_stored_as_they_were_given(cloud):
    await cloud.queue()
    await cloud.client.pause_queue(name=cloud.queue_name())
    sent = {"X-Mixed-Case": "kept", "content-type": "application/json"}
    made = await cloud.task(request={"headers": sent, "body": b"{}"})
    for view in (1, 2):
        task = await cloud.client.get_task(request={"name": made.name, "response_view": view})
        assert dict(task.http_request.headers) == {**sent, "User-Agent": "Google-Cloud-Tasks"}


async def test_sync_client_sees_the_same(cloud, worker):
    def use():
        with grpc.insecure_channel(f"127.0.0.1:{cloud.running.port}") as channel:
            client = tasks_v2.CloudTasksClient(transport=CloudTasksGrpcTransport(channel=channel))
            location = cloud.queue_name().split("/queues/")[0]
            queue = client.create_queue(parent=location, queue={"name": cloud.queue_name()})
            task = client.create_task(parent=queue.name, task={"http_request": {"url": worker.url}})
            with pytest.raises(google.NotFound, match="wait at least a minute"):
                client.get_queue(name=cloud.queue_name("never"))
            return task.name

    name = await asyncio.to_thread(use)
    [call] = await worker.until(1)
    assert name.endswith(f"/tasks/{call.task}")
