"""Many tasks created or deleted in one call, told as an operation that is done."""

from __future__ import annotations

import pytest
from google.api_core import exceptions as google
from google.cloud import tasks_v2

pytestmark = pytest.mark.asyncio(loop_scope="module")


def creations(cloud, *names):
    return [
        tasks_v2.CreateTaskRequest(
            parent=cloud.queue_name(),
            task={"name": f"{cloud.queue_name()}/tasks/{name}", "http_request": {"url": cloud.worker.url}},
        )
        for name in names
    ]


async def test_batch_is_created_and_runs(cloud, worker):
    await cloud.queue()
    operation = await cloud.client.batch_create_tasks(
        parent=cloud.queue_name(), requests=creations(cloud, "a", "b", "c")
    )
    made = await operation.result()
    assert [task.name.rsplit("/", 1)[1] for task in made.tasks] == ["a", "b", "c"]
    assert {call.task for call in await worker.until(3)} == {"a", "b", "c"}


async def test_each_of_a_batch_has_its_own_fate(cloud):
    await cloud.queue()
    await cloud.client.pause_queue(name=cloud.queue_name())
    await cloud.task("taken")
    operation = await cloud.client.batch_create_tasks(
        parent=cloud.queue_name(), requests=creations(cloud, "new", "taken", "bad name")
    )
    assert len((await operation.result()).tasks) == 1
    metadata = operation.metadata
    assert metadata.state == tasks_v2.BatchCreateTasksMetadata.State.PARTIALLY_SUCCEEDED
    assert {index: status.code for index, status in metadata.failed_requests.items()} == {1: 6, 2: 3}
    names = [f"{cloud.queue_name()}/tasks/{name}" for name in ("new", "taken", "never")]
    operation = await cloud.client.batch_delete_tasks(parent=cloud.queue_name(), names=names)
    await operation.result()
    assert {index: status.code for index, status in operation.metadata.failed_requests.items()} == {2: 5}
    assert [task async for task in await cloud.client.list_tasks(parent=cloud.queue_name())] == []


async def test_batch_of_failures_alone_is_an_aborted_operation(cloud):
    await cloud.queue()
    operation = await cloud.client.batch_delete_tasks(
        parent=cloud.queue_name(), names=[f"{cloud.queue_name()}/tasks/never"]
    )
    with pytest.raises(google.GoogleAPICallError, match="None of the requests succeeded"):
        await operation.result()


async def test_same_request_id_does_the_work_once(cloud, worker):
    await cloud.queue()
    request = {"parent": cloud.queue_name(), "requests": creations(cloud, "once"), "request_id": "r1"}
    first = await cloud.client.batch_create_tasks(request=request)
    again = await cloud.client.batch_create_tasks(request=request)
    assert first.operation == again.operation
    found = await cloud.client.get_operation(request={"name": first.operation.name})
    assert found.done
    with pytest.raises(google.NotFound):
        await cloud.client.get_operation(request={"name": "projects/p/locations/l/operations/never"})


async def test_senseless_batch_is_refused_whole(cloud):
    await cloud.queue()
    for requests in (
        [],
        creations(cloud, *map(str, range(101))),
        [tasks_v2.CreateTaskRequest(parent="other")],
    ):
        with pytest.raises(google.InvalidArgument):
            await cloud.client.batch_create_tasks(parent=cloud.queue_name(), requests=requests)
    for names in ([], ["other"]):
        with pytest.raises(google.InvalidArgument):
            await cloud.client.batch_delete_tasks(parent=cloud.queue_name(), names=names)
