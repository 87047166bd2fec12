"""Makes the queues of a local system, through the real SDK, as Terraform does for a deployed one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import grpc.aio
from google.cloud import tasks_v2
from google.cloud.tasks_v2.services.cloud_tasks.transports import CloudTasksGrpcAsyncIOTransport

from localcloud.environment import AUDIENCE, LOCATION, PROJECT, SERVICE_ACCOUNT, SWEEP_QUEUE, Queue


@asynccontextmanager
async def tasks_client(address: str) -> AsyncIterator[tasks_v2.CloudTasksAsyncClient]:
    # A proxy named in the environment is not for loopback.
    async with grpc.aio.insecure_channel(address, [("grpc.enable_http_proxy", 0)]) as channel:
        yield tasks_v2.CloudTasksAsyncClient(transport=CloudTasksGrpcAsyncIOTransport(channel=channel))


async def create_queues(address: str, queues: Sequence[Queue]) -> None:
    """A queue that is there already, from an earlier start on the same data, gets the settings of now."""
    async with tasks_client(address) as client, asyncio.TaskGroup() as group:
        for queue in queues:
            made = tasks_v2.Queue(
                name=client.queue_path(PROJECT, LOCATION, queue.name),
                rate_limits=tasks_v2.RateLimits(
                    max_dispatches_per_second=queue.max_dispatches_per_second,
                    max_concurrent_dispatches=queue.max_concurrent_dispatches,
                ),
                retry_config=tasks_v2.RetryConfig(
                    max_attempts=-1,
                    min_backoff=timedelta(seconds=queue.min_backoff_seconds),
                    max_backoff=timedelta(seconds=queue.max_backoff_seconds),
                    max_doublings=queue.max_doublings,
                ),
            )
            group.create_task(client.update_queue(queue=made, timeout=10))


async def pause_queues(address: str) -> None:
    """Nothing is dispatched any more; tasks can still be created."""
    async with tasks_client(address) as client:
        parent = client.common_location_path(PROJECT, LOCATION)
        async for queue in await client.list_queues(parent=parent):
            await client.pause_queue(name=queue.name)


async def call_sweep(address: str, complete_url: str) -> None:
    """One tick of the scheduler."""
    await call_once(address, f"{complete_url}/sweep")


async def call_once(address: str, url: str, body: bytes = b"") -> str:
    """A call of a function, as a Cloud Task, because that signs its token; the task's name."""
    async with tasks_client(address) as client:
        task = await client.create_task(
            parent=client.queue_path(PROJECT, LOCATION, SWEEP_QUEUE),
            task=tasks_v2.Task(
                http_request=tasks_v2.HttpRequest(
                    http_method=tasks_v2.HttpMethod.POST,
                    url=url,
                    headers={"content-type": "application/json"} if body else {},
                    body=body,
                    oidc_token=tasks_v2.OidcToken(service_account_email=SERVICE_ACCOUNT, audience=AUDIENCE),
                )
            ),
            timeout=10,
        )
        return task.name
