"""Odd input: refused with Google's codes, and nobody else notices."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from google.api_core import exceptions as google
from google.cloud import tasks_v2
from google.protobuf import duration_pb2, field_mask_pb2
from starlette.responses import Response

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize(
    "change",
    [
        {"request": {"url": ""}},
        {"request": {"url": "ftp://host/"}},
        {"request": {"url": "http://"}},
        {"request": {"url": "http://[::1"}},
        {"request": {"url": "http://host:99999/"}},
        {"request": {"url": "http://host/a\nb"}},
        {"request": {"url": "http://host/" + "a" * 2083}},
        {"request": {"http_method": "GET", "body": b"x"}},
        {"request": {"http_method": 99}},
        {"request": {"headers": {"bad name": "x"}}},
        {"request": {"headers": {"X": "a\r\nInjected: 1"}}},
        {"request": {"headers": {"X": "a" * 90_000}}},
        {"request": {"body": b"x" * 1_100_000}},
        {"request": {"oidc_token": {"service_account_email": "nobody"}}},
        {"dispatch_deadline": duration_pb2.Duration(seconds=14)},
        {"dispatch_deadline": duration_pb2.Duration(seconds=1801)},
        {"dispatch_deadline": duration_pb2.Duration(seconds=2**62)},
        {"schedule_time": datetime.now(UTC) + timedelta(days=40)},
        {"name": "bad name"},
        {"name": "x" * 501},
    ],
)
async def test_odd_task_is_refused_and_leaves_nothing(cloud, change):
    await cloud.queue()
    fields = dict(change)
    request = fields.pop("request", {})
    url = request.pop("url", cloud.worker.url) if "url" in request else cloud.worker.url
    task = tasks_v2.Task(http_request={"url": url, **request})
    name = fields.pop("name", None)
    if name:
        task.name = f"{cloud.queue_name()}/tasks/{name}"
    for field_name, value in fields.items():
        setattr(task, field_name, value)
    with pytest.raises(google.InvalidArgument):
        await cloud.client.create_task(parent=cloud.queue_name(), task=task)
    assert [task async for task in await cloud.client.list_tasks(parent=cloud.queue_name())] == []


@pytest.mark.parametrize(
    "url", ["http://xn--/", "http://a..b/", "http://" + "a" * 70 + ".invalid/", "http://0.0.0.0:1/%zz?#"]
)
async def test_target_that_cannot_be_called_disturbs_no_other_task(cloud, worker, retries, url):
    await cloud.queue("odd", retry_config=retries(max_attempts=2))
    await cloud.queue()
    try:
        odd = await cloud.task(queue="odd", url=url)
    except google.InvalidArgument:
        odd = None
    await cloud.task("fine")
    assert [call.task for call in await worker.until(1)] == ["fine"]
    if odd:
        await cloud.gone(odd.name)


async def test_answers_of_any_shape_are_survived(cloud, worker, retries):
    async def answer(call):
        if call.headers["x-cloudtasks-taskretrycount"] == "0":
            return Response(b"x" * 1_000_000, status_code=429, headers={"Retry-After": "soon, maybe"})
        return Response()

    worker.answer = answer
    await cloud.queue(retry_config=retries())
    task = await cloud.task()
    await cloud.gone(task.name)


async def test_app_engine_and_unknown_features_are_refused_by_name(cloud):
    await cloud.queue()
    with pytest.raises(google.MethodNotImplemented, match="app_engine_http_request"):
        await cloud.client.create_task(
            parent=cloud.queue_name(), task=tasks_v2.Task(app_engine_http_request={"relative_uri": "/"})
        )
    with pytest.raises(google.MethodNotImplemented, match="app_engine_routing_override"):
        await cloud.queue("r", app_engine_routing_override={"service": "s"})
    with pytest.raises(google.MethodNotImplemented, match="app_engine_routing_override"):
        await cloud.client.update_queue(
            queue=tasks_v2.Queue(name=cloud.queue_name(), app_engine_routing_override={"service": "s"}),
            update_mask=field_mask_pb2.FieldMask(paths=["app_engine_routing_override.service"]),
        )
    with pytest.raises(google.MethodNotImplemented, match="CloudTasks/GetIamPolicy"):
        await cloud.client.get_iam_policy(request={"resource": cloud.queue_name()})
    with pytest.raises(google.MethodNotImplemented, match="Locations/ListLocations"):
        await cloud.client.list_locations(request={"name": "projects/p"})


async def test_bad_names_masks_and_page_tokens_are_refused(cloud):
    await cloud.queue()
    client = cloud.client
    location = cloud.queue_name().split("/queues/")[0]
    refused = [
        client.get_queue(name="q"),
        client.get_queue(name=f"{location}/queues/a_b"),
        client.get_task(name=cloud.queue_name()),
        client.create_queue(parent="projects/p", queue=tasks_v2.Queue(name=cloud.queue_name("x"))),
        client.create_queue(
            parent=location.replace("/p/", "/o/"), queue=tasks_v2.Queue(name=cloud.queue_name("x"))
        ),
        client.list_tasks(request={"parent": cloud.queue_name(), "page_token": "?"}),
        client.list_tasks(request={"parent": cloud.queue_name(), "page_token": "eHg="}),
        client.list_tasks(request={"parent": cloud.queue_name(), "page_size": -1}),
        client.update_queue(
            queue=tasks_v2.Queue(name=cloud.queue_name()),
            update_mask=field_mask_pb2.FieldMask(paths=["rate_limits.nonsense"]),
        ),
    ]
    for call in refused:
        with pytest.raises(google.InvalidArgument):
            await call
    with pytest.raises(google.AlreadyExists):
        await cloud.queue()
