"""How requests leave: a small HTTP/1.1 client whose cost per request doesn't grow with those under way.

General clients look through all their connections and waiting callers for every request; with a thousand
deliveries under way per queue that is most of the time spent. This one knows only what a delivery needs: one
request, the status and the headers of its answer, and a connection that is used again for a short while.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import cast
from urllib.parse import quote, urlsplit

import h11

_CONNECT_SECONDS = 10.0
_IDLE_SECONDS = 1.5
"""Shorter than servers wait: gunicorn closes an idle connection after two."""
_MOST_IDLE = 200
"""Per address."""
_BODY_READ = 64 * 1024
"""An answer up to this size is read, so that its connection can be used again; a longer one is cut off."""
_LARGEST_HEAD = 256 * 1024
_SAFE = "%/:?@!$&'()*+,;=~-._[]"


class NoAnswer(Exception):
    """The request brought no answer."""


class NoConnection(NoAnswer):
    """The worker could not be reached: the request was never sent."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]


@dataclass(frozen=True, slots=True)
class _Address:
    host: str
    port: int
    is_secure: bool


class Http1Client:
    def __init__(self) -> None:
        self._idle: dict[_Address, list[_Connection]] = {}
        self._open: set[_Connection] = set()
        self._tls: ssl.SSLContext | None = None

    async def send(self, method: str, url: str, headers: dict[str, str], body: bytes) -> Answer:
        try:
            address, host, target = _split(url)
            head = _head(method, host, target, headers, body)
        except (ValueError, UnicodeError, h11.LocalProtocolError) as error:
            raise NoConnection(f"cannot be requested: {error}") from error
        connection = self._take_idle(address) or await self._connect(address)
        try:
            answer = await connection.exchange(head, body)
        except BaseException:
            connection.abort()
            raise
        if connection.is_reusable:
            self._keep(address, connection)
        else:
            connection.abort()
        return answer

    def close(self) -> None:
        for connection in list(self._open):
            connection.abort()

    def _take_idle(self, address: _Address) -> _Connection | None:
        idle = self._idle.get(address)
        while idle:
            connection = idle.pop()
            if not idle:
                del self._idle[address]
            if not connection.is_closed:
                connection.wake()
                return connection
        return None

    def _keep(self, address: _Address, connection: _Connection) -> None:
        idle = self._idle.setdefault(address, [])
        if len(idle) >= _MOST_IDLE:
            connection.abort()
            return
        idle.append(connection)
        connection.rest(_IDLE_SECONDS, lambda: self._drop(address, connection))

    def _drop(self, address: _Address, connection: _Connection) -> None:
        connection.abort()
        idle = self._idle.get(address)
        if idle and connection in idle:
            idle.remove(connection)
            if not idle:
                del self._idle[address]

    async def _connect(self, address: _Address) -> _Connection:
        connection = _Connection(self._open)
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                await asyncio.get_running_loop().create_connection(
                    lambda: connection,
                    address.host,
                    address.port,
                    ssl=self._secure() if address.is_secure else None,
                )
        except (OSError, ssl.SSLError, UnicodeError, ValueError) as error:  # a time-out is an OSError too
            raise NoConnection(str(error) or type(error).__name__) from error
        return connection

    def _secure(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls


class _Connection(asyncio.Protocol):
    def __init__(self, opened: set[_Connection]) -> None:
        self._opened = opened
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_LARGEST_HEAD)
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[Answer] | None = None
        self._response: h11.Response | None = None
        self._read = 0
        self._resting: asyncio.TimerHandle | None = None
        self.is_closed = False

    @property
    def is_reusable(self) -> bool:
        return not self.is_closed and self._http.our_state is h11.IDLE

    async def exchange(self, head: h11.Request, body: bytes) -> Answer:
        if self._transport is None or self.is_closed:
            raise NoAnswer("the connection is closed")
        self._waiting = asyncio.get_running_loop().create_future()
        self._response, self._read = None, 0
        parts: Iterable[h11.Event] = (head, h11.Data(data=body), h11.EndOfMessage())
        self._transport.write(b"".join(self._http.send(part) or b"" for part in parts))
        return await self._waiting

    def rest(self, seconds: float, end: Callable[[], None]) -> None:
        """Wait for the next request; `end` is called when none comes."""
        self._resting = asyncio.get_running_loop().call_later(seconds, end)

    def wake(self) -> None:
        if self._resting:
            self._resting.cancel()
            self._resting = None

    def abort(self) -> None:
        self.is_closed = True
        self.wake()
        if self._transport is not None:
            self._transport.abort()

    # -- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A stream's transport; uvloop's own doesn't derive from asyncio's class.
        self._transport = cast(asyncio.Transport, transport)
        self._opened.add(self)

    def data_received(self, data: bytes) -> None:
        if self._waiting is None or self._waiting.done():  # nobody asked
            self.abort()
            return
        self._hear(data)

    def eof_received(self) -> bool:
        self.is_closed = True
        if self._waiting is not None and not self._waiting.done():
            self._hear(b"")
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.is_closed = True
        self.wake()
        self._opened.discard(self)
        self._fail(NoAnswer(str(error) if error else "the connection was closed"))

    def _hear(self, data: bytes) -> None:
        try:
            self._http.receive_data(data)
            while True:
                event = self._http.next_event()
                if isinstance(event, h11.Response):
                    self._response = event
                elif isinstance(event, h11.Data):
                    self._read += len(event.data)
                    if self._read > _BODY_READ:
                        self._finish(cut=True)
                        return
                elif isinstance(event, h11.EndOfMessage):
                    self._finish(cut=False)
                    return
                elif event is h11.NEED_DATA or event is h11.PAUSED:
                    return
                elif isinstance(event, h11.ConnectionClosed):
                    self._fail(NoAnswer("the connection was closed"))
                    return
        except h11.RemoteProtocolError as error:
            self._fail(NoAnswer(str(error)))

    def _finish(self, *, cut: bool) -> None:
        if self._response is None or self._waiting is None or self._waiting.done():
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in self._response.headers}
        if not cut and self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        self._waiting.set_result(Answer(self._response.status_code, headers))

    def _fail(self, error: NoAnswer) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error)


def _head(method: str, host: str, target: str, headers: dict[str, str], body: bytes) -> h11.Request:
    fields = [(b"Host", host.encode("ascii"))]
    if not any(name.lower() == "accept" for name in headers):
        fields.append((b"Accept", b"*/*"))
    fields += [(name.encode("ascii"), value.strip(" \t").encode()) for name, value in headers.items()]
    if body or method in ("POST", "PUT", "PATCH"):
        fields.append((b"Content-Length", str(len(body)).encode()))
    return h11.Request(method=method, target=target, headers=fields)


@lru_cache(maxsize=1000)
def _split(url: str) -> tuple[_Address, str, str]:
    """Where to connect, the Host header, and what to ask for there."""
    parts = urlsplit(url)
    name = parts.hostname or ""
    if not name.isascii():
        name = name.encode("idna").decode("ascii")
    is_secure = parts.scheme.lower() == "https"
    usual = 443 if is_secure else 80
    port = parts.port or usual
    shown = f"[{name}]" if ":" in name else name
    target = quote(parts.path or "/", safe=_SAFE)
    if parts.query:
        target = f"{target}?{quote(parts.query, safe=_SAFE)}"
    return _Address(name, port, is_secure), shown if port == usual else f"{shown}:{port}", target
