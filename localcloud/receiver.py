"""The mini-program's cloud function on a laptop: takes callbacks, checks their signature, keeps them in an
inbox.

It checks by its own reading of Standard Webhooks, not with our sender's code, so that the two can disagree.
`GET /inbox` lists what came, `DELETE /inbox` forgets it, `GET /inbox/stream` (SSE) shows it from the
beginning and goes on as more comes. The fault operation is `callback`; words: an HTTP status, `hang`,
`disconnect`, `redirect`, `huge`.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from localcloud.faults import Fault, Faults
from localcloud.http import HttpServer, drop, fault_routes, hang, serve_http
from shared.clock import Clock

TOLERANCE = timedelta(minutes=5)
_HUGE = 32 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One delivery, whether its signature was right or not."""

    webhook_id: str
    received_at: datetime
    body: Any
    """The JSON, or the text of what is not JSON."""
    verified: bool

    def shown(self) -> dict[str, Any]:
        return {
            "webhookId": self.webhook_id,
            "receivedAt": self.received_at.isoformat(),
            "body": self.body,
            "verified": self.verified,
        }


@dataclass(slots=True)
class Inbox:
    """What came, in order; others can wait for more."""

    entries: list[Received] = field(default_factory=list)
    generation: int = 0
    """How often it was emptied: positions before are void."""
    _arrived: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def put(self, entry: Received) -> None:
        async with self._arrived:
            self.entries.append(entry)
            self._arrived.notify_all()

    async def clear(self) -> None:
        async with self._arrived:
            self.entries.clear()
            self.generation += 1
            self._arrived.notify_all()

    async def wait(
        self, matching: Callable[[Received], bool] = lambda _: True, *, start: int = 0
    ) -> tuple[int, Received]:
        """The first entry at or after `start` that matches, and its position; waits until there is one."""
        generation = self.generation
        async with self._arrived:
            while True:
                if generation != self.generation:
                    generation, start = self.generation, 0
                for position in range(start, len(self.entries)):
                    if matching(self.entries[position]):
                        return position, self.entries[position]
                start = max(start, len(self.entries))
                await self._arrived.wait()


def is_signed(secret: bytes, headers: dict[str, str], body: bytes, now: datetime) -> bool:
    """Signature and age, after Standard Webhooks."""
    webhook_id, stamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not webhook_id or not (stamp.isascii() and stamp.isdigit()):
        return False
    if abs(now.timestamp() - int(stamp)) > TOLERANCE.total_seconds():
        return False
    text = b".".join((webhook_id.encode(), stamp.encode(), body))
    right = b"v1," + base64.b64encode(hmac.digest(secret, text, hashlib.sha256))
    given = headers.get("webhook-signature", "").encode().split()
    return any(hmac.compare_digest(right, one) for one in given)


class ReceiverApp:
    """The wire."""

    def __init__(self, inbox: Inbox, *, clock: Clock, faults: Faults, secret: str, path: str) -> None:
        self._inbox = inbox
        self._clock = clock
        self._faults = faults
        self._secret = base64.b64decode(secret.removeprefix("whsec_"))
        self._path = path

    def routes(self) -> list[Route]:
        return [
            *fault_routes(self._faults),
            Route("/inbox", self._list, methods=["GET"]),
            Route("/inbox", self._clear, methods=["DELETE"]),
            Route("/inbox/stream", self._stream, methods=["GET"]),
            Route(self._path, self._receive, methods=["POST"]),
        ]

    async def _receive(self, request: Request) -> Response:
        body = await request.body()
        if fault := await self._faults.before("callback"):
            return await self._misbehave(request, fault)
        headers = dict(request.headers)
        now = self._clock.now()
        verified = is_signed(self._secret, headers, body, now)
        await self._inbox.put(
            Received(
                webhook_id=headers.get("webhook-id", ""),
                received_at=now,
                body=_content(body),
                verified=verified,
            )
        )
        if fault := await self._faults.after("callback"):
            return await self._misbehave(request, fault)
        if not verified:
            return JSONResponse({"error": "signature"}, status_code=401)
        return JSONResponse({"ok": True})

    async def _misbehave(self, request: Request, fault: Fault) -> Response:
        match fault.error:
            case "hang":
                return await hang(request)
            case "disconnect":
                return await drop(request)
            case "redirect":
                return RedirectResponse(
                    fault.detail.get("location", f"{self._path}/elsewhere"), status_code=302
                )
            case "huge":
                return StreamingResponse(_endless(), media_type="text/plain")
            case word if word.isdigit() and 100 <= int(word) <= 599:
                return JSONResponse({"error": "told to fail"}, status_code=int(word))
            case word:
                return JSONResponse({"error": f"no such fault: {word}"}, status_code=501)

    async def _list(self, _: Request) -> Response:
        return JSONResponse([entry.shown() for entry in self._inbox.entries])

    async def _clear(self, _: Request) -> Response:
        await self._inbox.clear()
        return Response(status_code=204)

    async def _stream(self, request: Request) -> Response:
        last = request.headers.get("last-event-id", "")
        start = int(last) + 1 if last.isdigit() else 0
        # Starlette ends the body when the client goes away.
        return StreamingResponse(
            self._events(start), media_type="text/event-stream", headers={"cache-control": "no-store"}
        )

    async def _events(self, start: int) -> AsyncIterator[str]:
        # Something at once, so that the client knows the stream is open.
        yield ": inbox\n\n"
        while True:
            position, entry = await self._inbox.wait(start=start)
            yield f"id: {position}\ndata: {json.dumps(entry.shown(), ensure_ascii=False)}\n\n"
            start = position + 1


def _content(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body.decode("utf-8", "replace")


async def _endless() -> AsyncIterator[bytes]:
    for _ in range(_HUGE >> 16):
        yield b"x" * (1 << 16)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningReceiver:
    mailbox: Inbox
    path: str
    faults: Faults
    server: HttpServer

    @property
    def port(self) -> int:
        return self.server.port

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def callback_url(self) -> str:
        return self.url + self.path

    @property
    def inbox(self) -> list[Received]:
        return self.mailbox.entries

    async def wait(
        self, matching: Callable[[Received], bool] = lambda _: True, *, start: int = 0
    ) -> Received:
        """The first delivery that matches, at or after position `start`; waits until it comes."""
        return (await self.mailbox.wait(matching, start=start))[1]

    async def stop(self) -> None:
        await self.server.stop()


async def start_receiver(
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    clock: Clock,
    faults: Faults,
    secret: str,
    path: str = "/photography/callback",
) -> RunningReceiver:
    inbox = Inbox()
    app = ReceiverApp(inbox, clock=clock, faults=faults, secret=secret, path=path)
    server = await serve_http(Starlette(routes=app.routes()), host, port)
    return RunningReceiver(mailbox=inbox, path=path, faults=faults, server=server)
