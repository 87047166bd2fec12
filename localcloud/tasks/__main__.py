"""`python -m localcloud.tasks`: the embedded Cloud Tasks as a process of its own."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sqlite3
import sys
from pathlib import Path

from localcloud.faults import Faults
from localcloud.tasks.server import start_tasks
from shared.clock import SystemClock


async def serve(host: str, port: int, jwks_port: int, data: Path | None) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    running = await start_tasks(
        host=host, port=port, jwks_port=jwks_port, clock=SystemClock(), faults=Faults(), data=data
    )
    print(f"CLOUD_TASKS_EMULATOR_HOST={host}:{running.port}")
    print(f"OIDC_JWKS_URL={running.jwks_url}", flush=True)
    await stop.wait()
    await running.stop()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m localcloud.tasks", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8123, help="of the gRPC service; 0 takes a free one")
    parser.add_argument("--jwks-port", type=int, default=0, help="of the page with the public key")
    parser.add_argument("--data", type=Path, help="directory that keeps queues and tasks; without it, memory")
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    try:
        asyncio.run(serve(options.host, options.port, options.jwks_port, options.data))
    except (OSError, RuntimeError, sqlite3.Error) as error:
        print(f"localcloud.tasks cannot start: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
