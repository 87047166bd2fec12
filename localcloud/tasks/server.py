"""How the embedded Cloud Tasks starts and stops: engine, gRPC port, and a port for all that is HTTP."""

from __future__ import annotations

from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

import grpc.aio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from localcloud.faults import Faults
from localcloud.http import fault_routes, serve_http
from localcloud.tasks.counts import Counts
from localcloud.tasks.delivery import FaultyDelivery, HttpDelivery
from localcloud.tasks.engine import QUEUE_NAME_TAKEN_FOR, Engine
from localcloud.tasks.http1 import Http1Client
from localcloud.tasks.oidc import ISSUER, Signer, signing_key
from localcloud.tasks.rest import rest_route
from localcloud.tasks.service import Service
from localcloud.tasks.store import NoStore, SqliteStore, Store
from localcloud.tasks.wire import handlers
from shared.clock import Clock, system_random

JWKS_PATH = "/oauth2/v3/certs"
_LARGEST_REQUEST = 16 * 1024 * 1024
"""More than a task may have, so that one that is too large is refused in the service's own words."""


class RunningTasks:
    def __init__(
        self,
        *,
        port: int,
        url: str,
        faults: Faults,
        counts: Counts,
        engine: Engine,
        parts: AsyncExitStack,
    ) -> None:
        self.port = port
        """Of the gRPC service."""
        self.url = url
        """Of the other port: REST, the public key, faults and counts."""
        self.jwks_url = url + JWKS_PATH
        self.faults = faults
        self.counts = counts
        self._engine = engine
        self._parts = parts

    def reset(self) -> None:
        """Forget every queue, task and taken name."""
        self._engine.reset()

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
    queue_name_taken_for: timedelta = QUEUE_NAME_TAKEN_FOR,
) -> RunningTasks:
    """Port 0 takes a free one. With `data`, queues, tasks and the signing key are kept there."""
    counts = Counts()
    random = system_random()
    async with AsyncExitStack() as parts:  # what has started is stopped again if the rest can't
        store: Store = SqliteStore(data / "tasks.sqlite3") if data else NoStore()
        parts.callback(store.close)
        signer = Signer(signing_key(data), clock=clock, random=random)
        client = Http1Client()
        parts.callback(client.close)
        deliver = FaultyDelivery(
            HttpDelivery(client, signer=signer, clock=clock), faults=faults, counts=counts
        )
        engine = Engine(
            clock=clock,
            random=random,
            deliver=deliver,
            store=store,
            queue_name_taken_for=queue_name_taken_for,
        )
        parts.push_async_callback(engine.stop)
        service = Service(engine, clock=clock, faults=faults, counts=counts)
        pages = await serve_http(_pages(service, signer, faults, counts), host, jwks_port)
        parts.push_async_callback(pages.stop)
        # Two servers on one port would each get a share of the calls: a taken port must be an error.
        grpc_server = grpc.aio.server(
            options=[("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", _LARGEST_REQUEST)]
        )
        parts.push_async_callback(grpc_server.stop, None)
        grpc_server.add_generic_rpc_handlers(tuple(handlers(service)))
        bound = grpc_server.add_insecure_port(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        engine.resume()
        await grpc_server.start()
        return RunningTasks(
            port=bound,
            url=pages.url,
            faults=faults,
            counts=counts,
            engine=engine,
            parts=parts.pop_all(),
        )


def _pages(service: Service, signer: Signer, faults: Faults, counts: Counts) -> Starlette:
    async def certs(_: Request) -> Response:
        return JSONResponse(signer.jwks, headers={"Cache-Control": "public, max-age=3600"})

    async def discovery(request: Request) -> Response:
        return JSONResponse(
            {
                "issuer": ISSUER,
                "jwks_uri": str(request.base_url).rstrip("/") + JWKS_PATH,
                "response_types_supported": ["id_token"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["RS256"],
                "claims_supported": ["aud", "email", "email_verified", "exp", "iat", "iss", "sub"],
            }
        )

    async def read_counts(_: Request) -> Response:
        return JSONResponse(counts.snapshot())

    async def reset_counts(_: Request) -> Response:
        counts.reset()
        return Response(status_code=204)

    async def reset(_: Request) -> Response:
        service.engine.reset()
        return Response(status_code=204)

    return Starlette(
        routes=[
            Route(JWKS_PATH, certs),
            Route("/.well-known/openid-configuration", discovery),
            Route("/_counts", read_counts, methods=["GET"]),
            Route("/_counts", reset_counts, methods=["DELETE"]),
            Route("/_queues", reset, methods=["DELETE"]),
            rest_route(service),
            *fault_routes(faults),
        ]
    )
