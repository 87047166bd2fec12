"""How the embedded Cloud Tasks starts and stops: engine, gRPC port, page with the public key."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import grpc.aio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from localcloud.faults import Faults
from localcloud.http import fault_routes, serve_http
from localcloud.tasks.counts import Counts
from localcloud.tasks.delivery import FaultyDelivery, HttpDelivery, http_client
from localcloud.tasks.engine import Engine
from localcloud.tasks.oidc import Signer, signing_key
from localcloud.tasks.store import NoStore, SqliteStore, Store
from localcloud.tasks.wire import handlers
from shared.clock import Clock, system_random

JWKS_PATH = "/oauth2/v3/certs"


class RunningTasks:
    def __init__(
        self, *, port: int, jwks_url: str, faults: Faults, counts: Counts, parts: AsyncExitStack
    ) -> None:
        self.port = port
        """Of the gRPC service."""
        self.jwks_url = jwks_url
        self.faults = faults
        self.counts = counts
        self._parts = parts

    async def stop(self) -> None:
        """Deliveries under way are broken off; with a data directory the next start makes them again."""
        await self._parts.aclose()


async def start_tasks(
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    jwks_port: int = 0,
    clock: Clock,
    faults: Faults,
    data: Path | None = None,
) -> RunningTasks:
    """Port 0 takes a free one. With `data`, queues, tasks and the signing key are kept there."""
    counts = Counts()
    random = system_random()
    async with AsyncExitStack() as parts:  # what has started is stopped again if the rest can't
        store: Store = SqliteStore(data / "tasks.sqlite3") if data else NoStore()
        parts.callback(store.close)
        signer = Signer(signing_key(data), clock=clock, random=random)
        pages = await serve_http(_pages(signer, faults, counts), host, jwks_port)
        parts.push_async_callback(pages.stop)
        client = await parts.enter_async_context(http_client())
        deliver = FaultyDelivery(
            HttpDelivery(client, signer=signer, clock=clock), faults=faults, counts=counts
        )
        engine = Engine(clock=clock, random=random, deliver=deliver, store=store)
        parts.push_async_callback(engine.stop)
        # Two servers on one port would each get a share of the calls: a taken port must be an error.
        grpc_server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        parts.push_async_callback(grpc_server.stop, None)
        grpc_server.add_generic_rpc_handlers(tuple(handlers(engine, faults=faults, counts=counts)))
        bound = grpc_server.add_insecure_port(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        engine.resume()
        await grpc_server.start()
        return RunningTasks(
            port=bound,
            jwks_url=pages.url + JWKS_PATH,
            faults=faults,
            counts=counts,
            parts=parts.pop_all(),
        )


def _pages(signer: Signer, faults: Faults, counts: Counts) -> Starlette:
    async def certs(_: Request) -> Response:
        return JSONResponse(signer.jwks, headers={"Cache-Control": "public, max-age=3600"})

    async def read_counts(_: Request) -> Response:
        return JSONResponse(counts.snapshot())

    async def reset_counts(_: Request) -> Response:
        counts.reset()
        return Response(status_code=204)

    return Starlette(
        routes=[
            Route(JWKS_PATH, certs),
            Route("/_counts", read_counts, methods=["GET"]),
            Route("/_counts", reset_counts, methods=["DELETE"]),
            *fault_routes(faults),
        ]
    )
