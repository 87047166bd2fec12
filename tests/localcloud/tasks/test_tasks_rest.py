"""The same service over REST and JSON: through Google's REST transport, and as curl would call it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import httpx2
import pytest
import pytest_asyncio
from google.api_core import exceptions as google
from google.auth.credentials import AnonymousCredentials
from google.cloud import tasks_v2
from google.cloud.tasks_v2.services.cloud_tasks.transports.rest import CloudTasksRestTransport
from google.protobuf import field_mask_pb2

from localcloud.faults import Rule

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def http(cloud):
    async with httpx2.AsyncClient(base_url=f"{cloud.running.url}/v2", trust_env=False) as client:
        yield client


async def test_googles_rest_transport_can_do_it_all(cloud, worker, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    transport = CloudTasksRestTransport(
        host=cloud.running.url.removeprefix("http://"), url_scheme="http", credentials=AnonymousCredentials()
    )
    client = tasks_v2.CloudTasksClient(transport=transport)
    queue = cloud.queue_name()
    parent = queue.split("/queues/")[0]

    def use():
        client.create_queue(
            parent=parent, queue={"name": queue, "rate_limits": {"max_concurrent_dispatches": 3}}
        )
        changed = client.update_queue(
            queue={"name": queue, "rate_limits": {"max_dispatches_per_second": 7}},
            update_mask=field_mask_pb2.FieldMask(paths=["rate_limits.max_dispatches_per_second"]),
        )
        limits = changed.rate_limits
        assert (limits.max_dispatches_per_second, limits.max_concurrent_dispatches) == (7, 3)
        assert client.pause_queue(name=queue).state == tasks_v2.Queue.State.PAUSED
        assert [
            found.name for found in client.list_queues(request={"parent": parent, "filter": "state:PAUSED"})
        ]
        later = datetime.now(UTC) + timedelta(hours=1)
        names = [f"{queue}/tasks/t{number}" for number in range(5)]
        for name in names:
            task = {
                "name": name,
                "schedule_time": later,
                "http_request": {"url": worker.url, "body": b"\x00\xff"},
            }
            client.create_task(parent=queue, task=task)
        listed = client.list_tasks(request={"parent": queue, "page_size": 2})
        assert [task.name for task in listed] == names
        full = client.get_task(request={"name": names[0], "response_view": 2})
        assert full.http_request.body == b"\x00\xff"
        client.delete_task(name=names[1])
        with pytest.raises(google.NotFound, match="existed recently"):
            client.get_task(name=names[1])
        with pytest.raises(google.Conflict):
            client.create_task(parent=queue, task={"name": names[1], "http_request": {"url": worker.url}})
        with pytest.raises(google.MethodNotImplemented):
            client.get_iam_policy(request={"resource": queue})
        client.run_task(name=names[0])
        client.purge_queue(name=queue)
        client.resume_queue(name=queue)
        client.delete_queue(name=queue)
        with pytest.raises(google.NotFound):
            client.get_queue(name=queue)

    await asyncio.to_thread(use)
    await worker.until(1)


async def test_refusal_has_googles_shape(cloud, http):
    await cloud.queue()
    answer = await http.post(f"/{cloud.queue_name()}/tasks", json={"task": {"httpRequest": {"url": "x"}}})
    assert answer.status_code == 400
    assert answer.json()["error"] == {
        "code": 400,
        "message": "HttpTarget.url must start with 'http://' or 'https://'.",
        "status": "INVALID_ARGUMENT",
    }
    named = {"task": {"name": f"{cloud.queue_name()}/tasks/a b", "httpRequest": {"url": "http://h/"}}}
    error = (await http.post(f"/{cloud.queue_name()}/tasks", json=named)).json()["error"]
    assert error["details"][0]["links"][0]["description"] == "Definition of task ID"


@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff", b'{"task": 7}', b'{"colour": "red"}', b"[" * 5000])
async def test_nonsense_is_a_bad_request(cloud, http, body):
    await cloud.queue()
    answer = await http.post(f"/{cloud.queue_name()}/tasks", content=body)
    assert (answer.status_code, answer.json()["error"]["status"]) == (400, "INVALID_ARGUMENT")


async def test_unknown_path_is_unimplemented_by_name(http):
    answer = await http.get("/projects/p/locations/l/widgets")
    assert answer.status_code == 501
    assert "GET /v2/projects/p/locations/l/widgets" in answer.json()["error"]["message"]


async def test_faults_and_counts_are_the_same_as_over_grpc(cloud, http):
    await cloud.queue()
    cloud.running.faults.add(Rule(operation="GetQueue", error="UNAVAILABLE", times=1))
    assert (await http.get(f"/{cloud.queue_name()}")).status_code == 503
    assert (await http.get(f"/{cloud.queue_name()}")).status_code == 200
    assert cloud.running.counts.snapshot()["calls"]["GetQueue"] == 2


async def test_buffered_request_becomes_a_task(cloud, http, worker):
    host, port = worker.base.removeprefix("http://").split(":")
    path = worker.url.removeprefix(worker.base)
    override = {"scheme": "HTTP", "host": host, "port": int(port), "path_override": {"path": path}}
    await cloud.queue(http_target={"uri_override": override})
    made = await http.post(f"/{cloud.queue_name()}/tasks:buffer", content=b'{"hello": 1}')
    assert made.json()["task"]["name"].startswith(f"{cloud.queue_name()}/tasks/")
    await http.post(
        f"/{cloud.queue_name()}/tasks/mine:buffer", content=b"a=b", headers={"Content-Type": "text/x"}
    )
    calls = {call.body: call for call in await worker.until(2)}
    assert calls[b'{"hello": 1}'].headers["content-type"] == "application/json"
    assert (calls[b"a=b"].task, calls[b"a=b"].headers["content-type"]) == ("mine", "text/x")
    again = await http.post(f"/{cloud.queue_name()}/tasks/mine:buffer", content=b"a=b")
    assert again.status_code == 409
    await cloud.queue("bare")
    assert (await http.post(f"/{cloud.queue_name('bare')}/tasks:buffer", content=b"x")).status_code == 400
