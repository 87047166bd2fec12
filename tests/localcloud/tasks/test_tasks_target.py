"""What a queue's HTTP target does to the requests of its tasks."""

from __future__ import annotations

import pytest
from google.api_core import exceptions as google
from google.cloud import tasks_v2
from google.protobuf import field_mask_pb2

from localcloud.tasks.call import UriOverride

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_target_overrides_address_method_headers_and_token(cloud, worker):
    host, port = worker.base.removeprefix("http://").split(":")
    account = "queue@p.iam.gserviceaccount.com"
    target = {
        "uri_override": {
            "scheme": "HTTP",
            "host": host,
            "port": int(port),
            "path_override": {"path": worker.url.removeprefix(worker.base)},
            "query_override": {"query_params": "from=queue"},
        },
        "http_method": "PUT",
        "header_overrides": [
            {"header": {"key": "X-Mine", "value": "queue"}},
            {"header": {"key": "X-CloudTasks-TaskName", "value": "forged"}},
        ],
        "oidc_token": {"service_account_email": account, "audience": "https://a"},
    }
    await cloud.queue(http_target=target)
    token = {"service_account_email": "task@p.iam.gserviceaccount.com", "scope": "s"}
    request = {"headers": {"x-mine": "task", "X-Kept": "1"}, "body": b"kept", "oauth_token": token}
    await cloud.task("t", url="https://nowhere.invalid/other?from=task", request=request)
    [call] = await worker.until(1)
    assert (call.method, call.body, call.task) == ("PUT", b"kept", "t")
    assert (call.headers["x-mine"], call.headers["x-kept"]) == ("queue", "1")
    assert call.headers["authorization"].startswith("Bearer eyJ")
    shown = (await cloud.client.get_queue(name=cloud.queue_name())).http_target
    assert (shown.uri_override.host, shown.uri_override.port) == (host, int(port))
    assert shown.oidc_token.service_account_email == account
    assert [override.header.key for override in shown.header_overrides] == ["X-Mine"]


async def test_body_is_left_out_when_the_queue_makes_it_a_get(cloud, worker):
    await cloud.queue(http_target={"http_method": "GET"})
    await cloud.task(request={"body": b"ignored"})
    [call] = await worker.until(1)
    assert (call.method, call.body) == ("GET", b"")


async def test_target_is_changed_and_taken_away_by_mask_and_survives_a_restart(cloud_on, tmp_path):
    async with cloud_on(data=tmp_path) as cloud:
        await cloud.queue(
            http_target={"http_method": "GET", "uri_override": {"host": "a.example", "port": 81}}
        )
        changed = tasks_v2.Queue(name=cloud.queue_name(), http_target={"uri_override": {"host": "b.example"}})
        await cloud.client.update_queue(
            queue=changed,
            update_mask=field_mask_pb2.FieldMask(paths=["http_target.uri_override.host"]),
        )
    async with cloud_on(data=tmp_path) as cloud:
        target = (await cloud.client.get_queue(name=cloud.queue_name())).http_target
        assert (target.uri_override.host, target.uri_override.port) == ("b.example", 81)
        assert target.http_method == tasks_v2.HttpMethod.GET
        queue = await cloud.client.update_queue(
            queue=tasks_v2.Queue(name=cloud.queue_name()),
            update_mask=field_mask_pb2.FieldMask(paths=["http_target"]),
        )
        assert "http_target" not in queue


@pytest.mark.parametrize(
    "target",
    [
        {"uri_override": {"host": ""}},
        {"uri_override": {"host": "a b"}},
        {"uri_override": {"port": 70_000}},
        {"uri_override": {"port": -1}},
        {"uri_override": {"path_override": {"path": "/a\r\nb"}}},
        {"http_method": 99},
        {"header_overrides": [{"header": {"key": "bad name"}}]},
        {"oidc_token": {"service_account_email": "a@b.c"}},  # a queue's token needs its audience
        {"oauth_token": {"service_account_email": "a@b.c"}},  # and its scope
    ],
)
async def test_senseless_target_is_refused(cloud, target):
    with pytest.raises(google.InvalidArgument):
        await cloud.queue(http_target=target)


@pytest.mark.parametrize(
    ("override", "url", "expected"),
    [
        (UriOverride(scheme="https"), "http://h/p?q=1#f", "https://h/p?q=1#f"),
        (UriOverride(host="example.net"), "https://www.google.com", "https://example.net"),
        (UriOverride(port=123), "https://www.example.com/example", "https://www.example.com:123/example"),
        (UriOverride(port=0), "http://h:8080/p", "http://h/p"),
        (UriOverride(path="", query=""), "http://h/p?q=1", "http://h"),
        (UriOverride(path="n", query="a=b"), "http://h/p", "http://h/n?a=b"),
        # only what the task leaves out
        (
            UriOverride(host="x", port=1, path="/n", query="a", only_if_missing=True),
            "http://h",
            "http://h:1/n?a",
        ),
        (
            UriOverride(host="x", port=1, path="/n", query="a", only_if_missing=True),
            "http://h:2/p?q",
            "http://h:2/p?q",
        ),
        (UriOverride(port=81), "http://[::1]:80/", "http://[::1]:81/"),
    ],
)
async def test_override_of_an_address(override, url, expected):
    assert override.applied(url) == expected
