"""Real HTTP servers on loopback for answers that the embedded cloud does not give.

A server takes longer to stop than a test takes to run, so all tests here share one loop and a few servers.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from localcloud.http import HttpServer, serve_http

with warnings.catch_warnings():
    # Their sources have invalid escapes in them, which is an error here if it is met while a test runs.
    warnings.simplefilter("ignore")
    for sdk in ("google.genai", "qcloud_cos", "openai"):
        importlib.import_module(sdk)

Handler = Callable[[Request], Awaitable[Response]]
Serve = Callable[[Handler], Awaitable[HttpServer]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents and pytest_asyncio.is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


class Switchboard:
    """One server whose answers are given by whichever handler is plugged in."""

    server: HttpServer

    def __init__(self) -> None:
        self.handler: Handler | None = None

    async def start(self) -> None:
        async def handle(request: Request) -> Response:
            return await self.handler(request) if self.handler else Response(status_code=500)

        routes = [Route("/{path:path}", handle, methods=["GET", "POST", "PUT", "HEAD"])]
        self.server = await serve_http(Starlette(routes=routes))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def switchboards() -> AsyncIterator[list[Switchboard]]:
    """The servers that nobody uses at the moment."""
    free: list[Switchboard] = []
    yield free
    for board in free:
        await board.server.stop()


@pytest_asyncio.fixture(loop_scope="session")
async def serve(switchboards: list[Switchboard]) -> AsyncIterator[Serve]:
    """Gives a server whose every path is answered by one handler."""
    used: list[Switchboard] = []

    async def start(handler: Handler) -> HttpServer:
        if switchboards:
            board = switchboards.pop()
        else:
            board = Switchboard()
            await board.start()
        board.handler = handler
        used.append(board)
        return board.server

    yield start
    for board in used:
        board.handler = None
    switchboards.extend(used)
