"""One emulator as a process of its own, for somebody else's project: `python -m localcloud firestore|tasks`.

What it prints first are environment lines to copy; it serves until it is told to stop.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import sys
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from localcloud.faults import Faults
from shared.clock import SystemClock

if TYPE_CHECKING:
    from localcloud.firestore.transactions import Locking

Stop = Callable[[], Awaitable[None]]


async def start_firestore_alone(
    host: str, port: int, data: Path | None, locking: Locking
) -> tuple[dict[str, str], Stop]:
    from localcloud.firestore import start_firestore

    running = await start_firestore(
        host=host, port=port, clock=SystemClock(), faults=Faults(), data=data, locking=locking
    )
    return {"FIRESTORE_EMULATOR_HOST": address(host, running.port)}, running.stop


async def start_tasks_alone(
    host: str, port: int, data: Path | None, jwks_port: int
) -> tuple[dict[str, str], Stop]:
    from localcloud.tasks import start_tasks

    running = await start_tasks(
        host=host, port=port, jwks_port=jwks_port, clock=SystemClock(), faults=Faults(), data=data
    )
    lines = {"CLOUD_TASKS_EMULATOR_HOST": address(host, running.port), "OIDC_JWKS_URL": running.jwks_url}
    return lines, running.stop


def serve(name: str, starting: Awaitable[tuple[dict[str, str], Stop]], *, on_a_pipe: bool = False) -> int:
    """Run it until SIGINT or SIGTERM, or until whoever holds the other end of stdin is gone; the exit code."""
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(starting, on_a_pipe))
    except (OSError, RuntimeError, sqlite3.Error, ValueError) as error:
        print(f"失败 · localcloud {name} cannot start: {error}", file=sys.stderr)
        return 1
    return 0


async def _serve(starting: Awaitable[tuple[dict[str, str], Stop]], on_a_pipe: bool) -> None:
    ending = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ending.set)
    if on_a_pipe:
        loop.add_reader(sys.stdin.fileno(), ending.set)  # nobody writes: it is readable when it is closed
    lines, stop = await starting
    print("\n".join(f"{name}={value}" for name, value in lines.items()), flush=True)
    await ending.wait()
    if on_a_pipe:
        loop.remove_reader(sys.stdin.fileno())
    await stop()


def print_indexes(host: str, port: int) -> int:
    """What a running Firestore has noted; the address is the environment's unless a port is given."""
    where = address(host, port) if port else os.environ.get("FIRESTORE_EMULATOR_HOST", "")
    if not where:
        print(
            "请指定 --port 或 FIRESTORE_EMULATOR_HOST · give --port or FIRESTORE_EMULATOR_HOST",
            file=sys.stderr,
        )
        return 2
    url = f"http://{where}/emulator/v1/indexes"
    try:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(url, timeout=10) as answer:
            indexes = json.load(answer)
    except (OSError, ValueError) as error:
        print(f"失败 · {url}: {error}", file=sys.stderr)
        return 1
    print(json.dumps(indexes, indent=2, ensure_ascii=False))
    return 0


def address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
