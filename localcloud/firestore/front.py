"""Why gRPC and plain HTTP share one port: Google's emulator does so, and tools reset it at the address that
FIRESTORE_EMULATOR_HOST names.

The first bytes of a connection tell which it is. HTTP/2 is piped to the gRPC server behind; anything else is
read as HTTP/1.1, of which only the emulator's own routes exist.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import socket
import sys
import tempfile
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import TypeAlias, cast
from urllib.parse import unquote

from localcloud.firestore.composite import Index

_PREFACE = b"PRI * HTTP/2"
_RESET = re.compile(r"/emulator/v1/(projects/[^/]+/databases/[^/]+)/documents/?")
_INDEXES = "/emulator/v1/indexes"
_MAX_HEAD = 64 * 1024

Reset: TypeAlias = Callable[[str], None]
Indexes: TypeAlias = Callable[[], list[Index]]


class Front:
    """Listens on the public port, in front of a gRPC server that listens on a socket of its own."""

    def __init__(self, *, reset: Reset, indexes: Indexes) -> None:
        self._reset = reset
        self._indexes = indexes
        # Linux has sockets with a name but no file, so that nothing is left behind by a kill.
        name = f"firestore-{os.getpid()}-{secrets.token_hex(8)}"
        self._is_abstract = sys.platform == "linux"
        self._socket = f"\0{name}" if self._is_abstract else str(Path(tempfile.gettempdir()) / name)
        self._server: asyncio.Server | None = None
        self._connections: set[_Connection] = set()

    @property
    def grpc_address(self) -> str:
        return f"unix-abstract:{self._socket[1:]}" if self._is_abstract else f"unix:{self._socket}"

    async def start(self, host: str, port: int) -> int:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._connection, host, port)
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.abort()
        if not self._is_abstract:
            Path(self._socket).unlink(missing_ok=True)  # noqa: ASYNC240

    def route(self, method: str, path: str) -> tuple[HTTPStatus, object]:
        """The status, and what to say: an object of JSON, a text, or why not."""
        match = _RESET.fullmatch(path)
        if match and method == "DELETE":
            self._reset(match.group(1))
            return HTTPStatus.OK, {}
        if path == _INDEXES and method == "GET":
            return HTTPStatus.OK, {"indexes": [index.as_declared() for index in self._indexes()]}
        if path == "/" and method == "GET":
            return HTTPStatus.OK, "Ok"
        if match:
            return HTTPStatus.METHOD_NOT_ALLOWED, f"{method} is not possible here: only DELETE, to reset."
        return HTTPStatus.NOT_FOUND, f"{method} {path} is not served here: gRPC, and DELETE to reset, are."

    @property
    def socket(self) -> str:
        return self._socket

    def _connection(self) -> _Connection:
        connection = _Connection(front=self, ended=self._connections.discard)
        self._connections.add(connection)
        return connection


class _End(asyncio.Protocol):
    """One end of a pipe: what it receives goes out at the other, no faster than that can send."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: _End | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not every loop's transports are subclasses of the one they behave like.
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, _: Exception | None) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()


class _Connection(_End):
    def __init__(self, *, front: Front, ended: Callable[[_Connection], None]) -> None:
        super().__init__()
        self._front = front
        self._ended = ended
        self._read = b""
        self._joining: asyncio.Task[None] | None = None

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            super().data_received(data)
            return
        self._read += data
        if self._joining is not None:
            return
        if self._read.startswith(_PREFACE):
            self._joining = asyncio.get_running_loop().create_task(self._join())
        elif not _PREFACE.startswith(self._read):
            self._answer()

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        if self._joining is not None:
            self._joining.cancel()
        self._ended(self)

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    async def _join(self) -> None:
        end = _End()
        end.other = self
        loop = asyncio.get_running_loop()
        behind = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        behind.setblocking(False)
        try:
            # Connected by hand: uvloop takes the name of a socket without a file for an empty one.
            await loop.sock_connect(behind, self._front.socket)
            await loop.create_unix_connection(lambda: end, sock=behind)
        except OSError:
            behind.close()
            self.abort()
            return
        self.other = end
        super().data_received(self._read)
        self._read = b""

    def _answer(self) -> None:
        """Answers every request that has come in whole."""
        while self.transport is not None and not self.transport.is_closing():
            head, end, rest = self._read.partition(b"\r\n\r\n")
            if not end:
                if len(head) > _MAX_HEAD:
                    self.transport.abort()
                return
            lines = head.decode("latin-1").split("\r\n")
            headers = {
                name.strip().lower(): value.strip()
                for name, _, value in (line.partition(":") for line in lines[1:])
            }
            length = headers.get("content-length", "0")
            if not length.isdecimal() or headers.get("transfer-encoding") or len(lines[0].split()) != 3:
                self._send(HTTPStatus.BAD_REQUEST, "The request cannot be read.", close=True)
                return
            if len(rest) < int(length):
                return
            self._read = rest[int(length) :]
            method, target, _ = lines[0].split()
            status, said = self._front.route(method, unquote(target.partition("?")[0]))
            self._send(status, said, close=headers.get("connection", "").lower() == "close")

    def _send(self, status: HTTPStatus, said: object, *, close: bool) -> None:
        if self.transport is None:
            return
        if status is not HTTPStatus.OK:
            name = status.phrase.upper().replace(" ", "_")
            said = {"error": {"code": status.value, "message": said, "status": name}}
        body, kind = (
            (f"{said}\n", "text/plain") if isinstance(said, str) else (json.dumps(said), "application/json")
        )
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {kind}; charset=utf-8\r\n"
            f"Content-Length: {len(body.encode())}\r\n"
            f"Connection: {'close' if close else 'keep-alive'}\r\n\r\n"
        )
        self.transport.write((head + body).encode())
        if close:
            self.transport.close()
