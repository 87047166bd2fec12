"""How an embedded HTTP server runs inside the loop of whoever starts it, and how it is told to misbehave.

uvicorn is made for owning a process: it takes over the signals, ends the process when a port is taken, and
waits for slow requests at the end. Here it owns nothing: a taken port raises, and `stop` ends what runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import Awaitable, Iterator
from typing import TypeVar

import uvicorn
from pydantic import TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from localcloud.faults import Faults, Rule

T = TypeVar("T")

_DROP = "localcloud.drop"
_RULES = TypeAdapter(list[Rule])


class ClientGone(Exception):
    """The caller hung up before the answer was ready."""


class _Server(uvicorn.Server):
    """uvicorn's, without its hold on signals and its pauses at the end."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ending = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        while not self.ending.is_set():
            # The Date header of the answers is made anew here.
            await self.on_tick(0)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await self.ending.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for listener in sockets or ():
            listener.close()


class HttpServer:
    """One listening socket and the application behind it."""

    def __init__(self, app: ASGIApp, listener: socket.socket) -> None:
        self._app = app
        self._listener = listener
        self.host: str
        self.port: int
        self.host, self.port = listener.getsockname()[:2]
        config = uvicorn.Config(
            self._call,
            log_config=None,
            log_level="warning",
            access_log=False,
            lifespan="off",
            ws="none",
            interface="asgi3",
            http="h11",
            proxy_headers=False,
            server_header=False,
            # Longer than clients keep an idle connection: no request meets one that is just being closed.
            timeout_keep_alive=120,
        )
        self._server = _Server(config)
        self._running: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    async def start(self) -> None:
        self._running = asyncio.create_task(self._server.serve([self._listener]))
        while not self._server.started:
            if self._running.done():
                self._running.result()
            await asyncio.sleep(0.001)

    async def stop(self, grace: float = 0.2) -> None:
        """Take no more requests, give those under way `grace` seconds, then hang up on them."""
        if self._running is None:
            return
        for listening in self._server.servers:
            listening.close()
        state = self._server.server_state
        if state.tasks:
            await asyncio.wait(set(state.tasks), timeout=grace)
        for connection in list(state.connections):
            if connection.transport is not None:
                connection.transport.abort()
        # Transports close in the next round of the loop.
        await asyncio.sleep(0)
        # A handler that waits with `until_gone` or `hang` ends by itself once its client is gone.
        if state.tasks:
            _, stuck = await asyncio.wait(set(state.tasks), timeout=1)
            for task in stuck:
                task.cancel()
        self._server.ending.set()
        await self._running
        self._running = None

    async def _call(self, scope: Scope, receive: Receive, send: Send) -> None:
        def drop() -> None:
            for connection in list(self._server.server_state.connections):
                peer = getattr(connection, "client", None)
                if connection.transport is not None and peer == scope.get("client"):
                    connection.transport.abort()

        scope[_DROP] = drop
        await self._app(scope, receive, send)


async def serve_http(app: ASGIApp, host: str = "127.0.0.1", port: int = 0) -> HttpServer:
    """Serve `app` in the running loop; port 0 takes a free one. A port that is taken raises OSError."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.setblocking(False)
        server = HttpServer(app, listener)
        await server.start()
    except BaseException:
        listener.close()
        raise
    return server


async def hang(request: Request) -> Response:
    """Never answer: wait until the caller gives up. (The body must have been read.)"""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    return Response(status_code=499)


async def drop(request: Request) -> Response:
    """Cut the connection without an answer."""
    request.scope[_DROP]()
    return await hang(request)


async def until_gone(request: Request, work: Awaitable[T]) -> T:
    """The result of `work`; ClientGone, and `work` cancelled, when the caller hangs up first.

    The body must have been read.
    """
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(hang(request))
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientGone
    finally:
        for task in (working, watching):
            task.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


def fault_routes(faults: Faults) -> list[Route]:
    """GET, PUT (the whole list) and DELETE of the rules in force, as JSON, at `/_faults`."""

    def shown() -> JSONResponse:
        return JSONResponse([rule.model_dump() for rule in faults.rules])

    async def read(_: Request) -> Response:
        return shown()

    async def replace(request: Request) -> Response:
        try:
            faults.replace(_RULES.validate_json(await request.body()))
        except ValidationError as error:
            return JSONResponse({"error": json.loads(error.json(include_url=False))}, status_code=400)
        return shown()

    async def clear(_: Request) -> Response:
        faults.clear()
        return Response(status_code=204)

    return [
        Route("/_faults", read, methods=["GET"]),
        Route("/_faults", replace, methods=["PUT"]),
        Route("/_faults", clear, methods=["DELETE"]),
    ]
