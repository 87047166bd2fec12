"""One process of the embedded cloud: some of its services, and a door to make them misbehave and to count.

`/faults/{service}` reads, replaces (PUT, a JSON list of rules) and clears its faults; `/counts/{service}`
tells what was asked of it, and DELETE begins anew. The supervisor runs this module as a child, or
`start_cloud` in its own loop.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Literal

import httpx2
import uvloop
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from localcloud.faults import Fault, Faults, Rule
from localcloud.http import serve_http
from localcloud.services import Counting, ServiceName, start_service
from shared.clock import Clock, SystemClock

_RULES = TypeAdapter(list[Rule])
_COUNTS = TypeAdapter(dict[str, dict[str, int]])


class CloudConfig(BaseModel):
    """What one process of the cloud consists of."""

    model_config = ConfigDict(extra="forbid")

    host: str = "127.0.0.1"
    services: dict[ServiceName, dict[str, Any]]
    """The arguments of each service to start."""
    faults: dict[ServiceName, list[Rule]] = {}


class CountedFaults(Faults):
    """Faults that also count, for servers that keep no books: every server asks before each operation."""

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        super().__init__(rules)
        self._calls: Counter[str] = Counter()

    async def before(self, operation: str) -> Fault | None:
        self._calls[operation] += 1
        return await super().before(operation)

    def snapshot(self) -> dict[str, dict[str, int]]:
        return {"calls": dict(self._calls)}

    def reset(self) -> None:
        self._calls.clear()


class Cloud:
    """The running services of one process."""

    def __init__(self) -> None:
        self.addresses: dict[str, str] = {}
        """Where each service listens, and under `control` the door to the faults and counts."""
        self._stops: list[Callable[[], Awaitable[None]]] = []

    def add(self, addresses: Mapping[str, str], stop: Callable[[], Awaitable[None]]) -> None:
        self.addresses |= addresses
        self._stops.append(stop)

    async def stop(self) -> None:
        await asyncio.gather(*(stop() for stop in self._stops))
        self._stops.clear()


async def start_cloud(config: CloudConfig, *, clock: Clock) -> Cloud:
    faults: dict[str, CountedFaults] = {
        name: CountedFaults(config.faults.get(name, ())) for name in config.services
    }
    counts: dict[str, Counting] = {}
    cloud = Cloud()
    try:
        for name, arguments in config.services.items():
            service = await start_service(name, arguments, host=config.host, clock=clock, faults=faults[name])
            cloud.add(service.addresses, service.stop)
            counts[name] = service.counts or faults[name]
        door = await serve_http(Starlette(routes=control_routes(faults, counts)), config.host, 0)
        cloud.add({"control": door.url}, door.stop)
    except BaseException:
        await cloud.stop()
        raise
    return cloud


def control_routes(faults: Mapping[str, Faults], counts: Mapping[str, Counting]) -> list[Route]:
    async def handle_faults(request: Request) -> Response:
        service = faults.get(request.path_params["service"])
        if service is None:
            return _no_such(request)
        if request.method == "PUT":
            try:
                service.replace(_RULES.validate_json(await request.body()))
            except ValidationError as error:
                return JSONResponse(json.loads(error.json(include_url=False)), status_code=400)
        elif request.method == "DELETE":
            service.clear()
        return JSONResponse([rule.model_dump() for rule in service.rules])

    async def handle_counts(request: Request) -> Response:
        service = counts.get(request.path_params["service"])
        if service is None:
            return _no_such(request)
        if request.method == "DELETE":
            service.reset()
        return JSONResponse(service.snapshot())

    return [
        Route("/faults/{service}", handle_faults, methods=["GET", "PUT", "DELETE"]),
        Route("/counts/{service}", handle_counts, methods=["GET", "DELETE"]),
    ]


def _no_such(request: Request) -> Response:
    return JSONResponse({"error": f"no service {request.path_params['service']} here"}, status_code=404)


class ServiceControl:
    """One service's faults and counts, seen from outside its process."""

    def __init__(self, http: httpx2.AsyncClient, control_url: str, service: str) -> None:
        self._http = http
        self._faults_url = f"{control_url}/faults/{service}"
        self._counts_url = f"{control_url}/counts/{service}"

    async def faults(self) -> list[Rule]:
        return _RULES.validate_python(await self._call("GET", self._faults_url))

    async def misbehave(self, *rules: Rule) -> None:
        """These rules, instead of those in force."""
        await self._call("PUT", self._faults_url, [rule.model_dump() for rule in rules])

    async def behave(self) -> None:
        await self._call("DELETE", self._faults_url)

    async def counts(self) -> dict[str, dict[str, int]]:
        return _COUNTS.validate_python(await self._call("GET", self._counts_url))

    async def count_anew(self) -> None:
        await self._call("DELETE", self._counts_url)

    async def _call(self, method: Literal["GET", "PUT", "DELETE"], url: str, body: Any = None) -> Any:
        answer = await self._http.request(method, url, json=body)
        answer.raise_for_status()
        return answer.json()


async def _until_told_to_stop() -> None:
    """Returns when stdin closes, which it does when the supervisor ends in whatever way, or on SIGTERM."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    loop.add_signal_handler(signal.SIGTERM, reader.feed_eof)
    try:
        await reader.read()
    finally:
        transport.close()


async def serve(config: CloudConfig) -> None:
    cloud = await start_cloud(config, clock=SystemClock())
    sys.stdout.write(json.dumps(cloud.addresses) + "\n")
    sys.stdout.flush()
    # That line was for the supervisor; from here on whatever is printed belongs in the log.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    await _until_told_to_stop()
    await cloud.stop()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(CloudConfig.model_validate_json(sys.stdin.readline())))
