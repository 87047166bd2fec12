"""What a client can do with tasks: names that stay taken, views, lists."""

from __future__ import annotations

from datetime import timedelta

import pytest
from google.api_core import exceptions as google
from google.cloud import tasks_v2

pytestmark = pytest.mark.asyncio(loop_scope="module")

BASIC, FULL = tasks_v2.Task.View.BASIC, tasks_v2.Task.View.FULL


async def test_task_runs_with_method_headers_and_body(cloud, worker):
    await cloud.queue()
    headers = {
        "Content-Type": "application/json",
        "X-Mine": "1",
        "x-cloudtasks-taskname": "forged",
        "X-CloudTasks-Mine": "1",
        "X-CloudTasks-TaskPreviousResponse": "200",
        "Host": "elsewhere",
    }
    await cloud.task("hello", request={"http_method": "PUT", "headers": headers, "body": b'{"a":1}'})
    call = (await worker.until(1))[0]
    assert (call.method, call.body) == ("PUT", b'{"a":1}')
    assert worker.url.endswith(call.path)
    assert call.headers["content-type"] == "application/json"
    assert call.headers["x-mine"] == "1"
    assert call.headers["user-agent"] == "Google-Cloud-Tasks"
    assert call.headers["x-cloudtasks-queuename"] == "q"
    assert call.headers["x-cloudtasks-taskname"] == "hello"
    assert call.headers["x-cloudtasks-taskretrycount"] == "0"
    assert call.headers["x-cloudtasks-taskexecutioncount"] == "0"
    assert float(call.headers["x-cloudtasks-tasketa"]) > 1_700_000_000
    assert "x-cloudtasks-taskpreviousresponse" not in call.headers
    assert "x-cloudtasks-mine" not in call.headers
    assert call.headers["host"] in worker.url


async def test_name_stays_taken_while_waiting_and_after_run_delete_and_purge(cloud, worker):
    await cloud.queue()
    ran = await cloud.task("ran")
    await worker.until(1)
    await cloud.gone(ran.name)
    await cloud.client.pause_queue(name=cloud.queue_name())
    await cloud.task("purged")
    await cloud.client.purge_queue(name=cloud.queue_name())
    await cloud.task("waiting")
    deleted = await cloud.task("deleted")
    await cloud.client.delete_task(name=deleted.name)
    for name in ("ran", "purged", "waiting", "deleted"):
        with pytest.raises(google.AlreadyExists):
            await cloud.task(name)
    for name in (ran.name, deleted.name):
        with pytest.raises(google.NotFound):
            await cloud.client.delete_task(name=name)
        with pytest.raises(google.NotFound):
            await cloud.client.run_task(name=name)


async def test_name_is_free_again_after_a_day(cloud_on, virtual, worker):
    async with cloud_on(clock=virtual) as cloud:
        await cloud.queue()
        task = await cloud.task("again", schedule_time=virtual.now() + timedelta(hours=1))
        await cloud.client.delete_task(name=task.name)
        await virtual.run(23 * 3600)
        with pytest.raises(google.AlreadyExists):
            await cloud.task("again")
        await virtual.run(2 * 3600)
        await cloud.task("again")


async def test_basic_view_hides_the_body_and_no_view_shows_a_token(cloud):
    await cloud.queue()
    await cloud.client.pause_queue(name=cloud.queue_name())
    made = await cloud.task(
        request={
            "body": b"secret",
            "headers": {"Authorization": "Bearer abc", "X-Mine": "1"},
            "oidc_token": {"service_account_email": "a@b.c"},
        }
    )
    basic = await cloud.client.get_task(name=made.name)
    full = await cloud.client.get_task(request={"name": made.name, "response_view": FULL})
    listed = await cloud.client.list_tasks(request={"parent": cloud.queue_name(), "response_view": FULL})
    assert (made.http_request.body, basic.http_request.body) == (b"", b"")
    assert (made.view, basic.view, full.view) == (BASIC, BASIC, FULL)
    assert full.http_request.body == b"secret"
    assert [task.http_request.body async for task in listed] == [b"secret"]
    assert full.http_request.oidc_token.service_account_email == "a@b.c"
    for task in (made, basic, full):
        assert dict(task.http_request.headers) == {"X-Mine": "1", "User-Agent": "Google-Cloud-Tasks"}
        assert task.http_request.http_method == tasks_v2.HttpMethod.POST


async def test_tasks_are_listed_in_pages_without_gaps(cloud):
    await cloud.queue()
    await cloud.client.pause_queue(name=cloud.queue_name())
    made = [(await cloud.task()).name for _ in range(7)]
    pager = await cloud.client.list_tasks(request={"parent": cloud.queue_name(), "page_size": 3})
    first = [task.name for task in (await anext(aiter(pager.pages))).tasks]
    await cloud.client.delete_task(name=first[-1])
    assert first + [task.name async for page in _rest(pager) for task in page.tasks] == made


async def _rest(pager):
    pages = aiter(pager.pages)
    await anext(pages)
    async for page in pages:
        yield page


async def test_task_of_another_queue_or_in_a_missing_queue_is_refused(cloud):
    await cloud.queue()
    task = tasks_v2.Task(name=f"{cloud.queue_name('other')}/tasks/a", http_request={"url": cloud.worker.url})
    with pytest.raises(google.InvalidArgument):
        await cloud.client.create_task(parent=cloud.queue_name(), task=task)
    with pytest.raises(google.NotFound):
        await cloud.client.create_task(parent=cloud.queue_name("other"), task=task)
