"""The README's list of what is missing, read against Google's own lists of methods and against the server."""

from __future__ import annotations

import importlib
import json
import re
from importlib import resources
from pathlib import Path

import grpc
import grpc.aio
import httpx2
import pytest
from google.api_core import exceptions as google
from google.cloud import tasks_v2

import localcloud.tasks

pytestmark = pytest.mark.asyncio(loop_scope="module")

README = Path(localcloud.tasks.__file__).with_name("README.md").read_text("utf-8")
MISSING = set(re.findall(r"^\| `([\w.]+/[\w*]+)` \|", README, re.MULTILINE))
SHARED = {  # methods that Google's client has beside the service's own
    "google.longrunning.Operations/GetOperation",
    "google.cloud.location.Locations/GetLocation",
    "google.cloud.location.Locations/ListLocations",
}


def methods_of(version: str) -> set[str]:
    """Every method of the installed library's service."""
    text = resources.files(f"google.cloud.tasks_{version}").joinpath("gapic_metadata.json").read_text("utf-8")
    metadata = json.loads(text)
    return {
        f"{metadata['protoPackage']}.{service}/{method}"
        for service, described in metadata["services"].items()
        for method in described["clients"]["grpc"]["rpcs"]
    }


def is_listed(method: str) -> bool:
    return method in MISSING or f"{method.split('/')[0]}/*" in MISSING


async def answer_to_nothing(cloud, method):
    """The status of an empty request."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{cloud.running.port}") as channel:
        try:
            await channel.unary_unary(f"/{method}")(b"")
        except grpc.aio.AioRpcError as error:
            return error.code(), error.details()
    return grpc.StatusCode.OK, ""


async def test_every_method_is_served_or_listed_as_missing(cloud):
    versions = ("v2", "v2beta2", "v2beta3")
    known = SHARED.union(*(methods_of(version) for version in versions))
    for method in sorted(known):
        code, details = await answer_to_nothing(cloud, method)
        if is_listed(method):
            assert code is grpc.StatusCode.UNIMPLEMENTED, method
            assert method in details
        else:
            assert code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND), (method, details)
    for listed in MISSING:
        assert any(method == listed or listed == f"{method.split('/')[0]}/*" for method in known), listed


async def test_fields_that_are_missing_are_listed(cloud):
    await cloud.queue()
    with pytest.raises(google.MethodNotImplemented) as task:
        await cloud.client.create_task(
            parent=cloud.queue_name(), task=tasks_v2.Task(app_engine_http_request={"relative_uri": "/"})
        )
    with pytest.raises(google.MethodNotImplemented) as queue:
        await cloud.queue("r", app_engine_routing_override={"service": "s"})
    for error in (task.value, queue.value):
        assert f"`{error.message.split()[0]}`" in README


async def test_older_versions_are_refused_by_name(cloud):
    for version in ("v2beta2", "v2beta3"):
        library = importlib.import_module(f"google.cloud.tasks_{version}")
        transports = importlib.import_module(f"google.cloud.tasks_{version}.services.cloud_tasks.transports")
        async with grpc.aio.insecure_channel(f"127.0.0.1:{cloud.running.port}") as channel:
            client = library.CloudTasksAsyncClient(
                transport=transports.CloudTasksGrpcAsyncIOTransport(channel=channel)
            )
            with pytest.raises(google.MethodNotImplemented, match=f"tasks.{version}.CloudTasks/GetQueue"):
                await client.get_queue(name=cloud.queue_name())


async def test_routes_of_the_other_port_are_as_told(cloud):
    base = cloud.running.jwks_url.split("/oauth2")[0]
    async with httpx2.AsyncClient(base_url=base, trust_env=False) as http:
        discovered = (await http.get("/.well-known/openid-configuration")).json()
        assert discovered["issuer"] == "https://accounts.google.com"
        assert (await http.get(discovered["jwks_uri"])).json()["keys"]
        await cloud.queue()
        assert (await http.get("/_counts")).json()["calls"]["CreateQueue"] == 1
        assert (await http.delete("/_counts")).status_code == 204
        rule = {"operation": "dispatch:q", "error": "lose_answer", "times": 1}
        assert (await http.put("/_faults", json=[rule])).status_code < 300
        assert (await http.get("/_faults")).json()[0]["error"] == "lose_answer"
        assert (await http.delete("/_faults")).status_code < 300
        assert (await http.delete("/_queues")).status_code == 204
    with pytest.raises(google.NotFound):
        await cloud.client.get_queue(name=cloud.queue_name())
    for path in ("/_counts", "/_queues", "/_faults", "/.well-known/openid-configuration"):
        assert path in README
