"""The ground under every embedded HTTP server."""

import asyncio

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from localcloud.faults import Faults, Rule
from localcloud.http import ClientGone, drop, fault_routes, hang, serve_http, until_gone


async def test_a_taken_port_raises_instead_of_ending_the_process() -> None:
    first = await serve_http(Starlette())
    with pytest.raises(OSError):
        await serve_http(Starlette(), "127.0.0.1", first.port)
    await first.stop()


async def test_faults_are_read_replaced_and_cleared_over_http() -> None:
    faults = Faults()
    server = await serve_http(Starlette(routes=fault_routes(faults)))
    async with httpx2.AsyncClient(base_url=server.url) as http:
        answer = await http.put("/_faults", json=[{"operation": "Get*", "error": "503", "times": 2}])
        assert answer.status_code == 200
        assert faults.rules == [Rule(operation="Get*", error="503", times=2)]
        assert (await http.get("/_faults")).json()[0]["operation"] == "Get*"
        assert (await http.put("/_faults", json=[{"opration": "typo"}])).status_code == 400
        assert len(faults.rules) == 1
        assert (await http.delete("/_faults")).status_code == 204
        assert faults.rules == []
    await server.stop()


async def test_work_is_cancelled_when_its_caller_hangs_up() -> None:
    cancelled = asyncio.Event()

    async def slow() -> Response:
        try:
            return await asyncio.sleep(60, Response())
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def handle(request: Request) -> Response:
        await request.body()
        try:
            return await until_gone(request, slow())
        except ClientGone:
            return Response()

    server = await serve_http(Starlette(routes=[Route("/", handle)]))
    async with httpx2.AsyncClient(base_url=server.url) as http:
        with pytest.raises(httpx2.ReadTimeout):
            await http.get("/", timeout=0.1)
    async with asyncio.timeout(5):
        await cancelled.wait()
    await server.stop()


async def test_a_dropped_request_leaves_the_others_alone() -> None:
    async def cut(request: Request) -> Response:
        return await drop(request)

    async def fine(_: Request) -> Response:
        await asyncio.sleep(0.05)
        return PlainTextResponse("fine")

    server = await serve_http(Starlette(routes=[Route("/cut", cut), Route("/fine", fine)]))
    async with httpx2.AsyncClient(base_url=server.url) as http:
        calm = asyncio.create_task(http.get("/fine"))
        with pytest.raises(httpx2.RemoteProtocolError):
            await http.get("/cut")
        assert (await calm).text == "fine"
    await server.stop()


async def test_stop_ends_requests_that_would_never_end() -> None:
    server = await serve_http(Starlette(routes=[Route("/", hang)]))
    async with httpx2.AsyncClient(base_url=server.url) as http:
        waiting = asyncio.create_task(http.get("/", timeout=60))
        await asyncio.sleep(0.05)
        async with asyncio.timeout(5):
            await server.stop(grace=0)
        with pytest.raises(httpx2.RemoteProtocolError):
            await waiting
