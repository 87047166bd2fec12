"""A child process of the supervisor: its own process group, its own log, an end that leaves nothing of it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from localcloud import leash

_LAST_LINES = 15


class ChildDied(Exception):
    """A child ended by itself."""

    def __init__(self, name: str, code: int | None, log: Path) -> None:
        lines = log.read_text("utf-8", "replace").splitlines()[-_LAST_LINES:] if log.exists() else []
        told = "\n".join(f"    {line}" for line in lines) or "    （日志为空 · nothing in its log）"
        super().__init__(f"{name} 意外退出 · {name} ended unexpectedly (code {code}), log {log}:\n{told}")
        self.name = name
        self.code = code


class Child:
    """One running child and all its descendants."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name = name
        self.log = log
        self._process = process
        self.exited = asyncio.ensure_future(process.wait())

    @classmethod
    async def start(
        cls,
        name: str,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        log: Path,
        piped: bool = False,
    ) -> Child:
        """`piped`: stdin and stdout are ours to talk through; otherwise stdout joins stderr in the log."""
        launcher = [sys.executable, "-I", "-S", str(Path(leash.__file__)), str(os.getpid())]
        with log.open("ab") as writable:
            process = await asyncio.create_subprocess_exec(
                *launcher,
                *command,
                env=dict(env),
                cwd=cwd,
                stdin=asyncio.subprocess.PIPE if piped else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE if piped else writable,
                stderr=writable,
                start_new_session=True,
            )
        return cls(name, process, log)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return not self.exited.done()

    def died(self) -> ChildDied:
        return ChildDied(self.name, self._process.returncode, self.log)

    async def tell(self, line: bytes) -> None:
        if self._process.stdin is None:
            raise ValueError(f"{self.name} has no pipe")
        with contextlib.suppress(ConnectionError):
            self._process.stdin.write(line + b"\n")
            await self._process.stdin.drain()

    async def hear(self) -> bytes:
        """One line that the child says; ChildDied if it ends before."""
        if self._process.stdout is None:
            raise ValueError(f"{self.name} has no pipe")
        line = await self._process.stdout.readline()
        if not line.endswith(b"\n"):
            await asyncio.wait({self.exited}, timeout=5)
            raise self.died()
        return line

    def kill_now(self) -> None:
        """Kill the whole group at once. Safe to call outside a loop, and again."""
        # The group lives on when only its leader has died.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    async def stop(self) -> None:
        """Kill it and wait for its end. No child keeps anything that a kill could spoil."""
        self.kill_now()
        await self.exited
        if self._process.stdin is not None:
            self._process.stdin.close()
        # The transport of a child that has ended is closed by the loop in its next round.
        await asyncio.sleep(0)


class ReservedPort:
    """A free port that stays ours until a child listens on it, and between two lives of that child.

    On Linux a bound socket that does not listen keeps others off the port, yet lets our child bind it (both
    with SO_REUSEADDR). Elsewhere that is refused, so the port is given up just before the child starts.
    """

    def __init__(self, host: str, port: int = 0) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind((host, port))
        self.host = host
        self.port: int = self._socket.getsockname()[1]

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def hand_over(self) -> None:
        if sys.platform != "linux":
            self.release()

    def release(self) -> None:
        self._socket.close()
