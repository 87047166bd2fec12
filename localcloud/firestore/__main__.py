"""Runs the embedded Firestore alone: `python -m localcloud.firestore --port 8080 --data DIR`."""

from __future__ import annotations

import argparse
import asyncio
import signal
from pathlib import Path

import uvloop

from localcloud.faults import Faults
from localcloud.firestore.server import start_firestore
from shared.clock import SystemClock


async def serve(options: argparse.Namespace) -> None:
    running = await start_firestore(
        host=options.host,
        port=options.port,
        clock=SystemClock(),
        faults=Faults(),
        data=options.data,
        locking=options.locking,
    )
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    print(f"FIRESTORE_EMULATOR_HOST={options.host}:{running.port}", flush=True)
    await stop.wait()
    await running.stop()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m localcloud.firestore", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0: any free port, printed on start")
    parser.add_argument(
        "--data", type=Path, default=None, help="directory to keep the data in; none: in memory"
    )
    parser.add_argument("--locking", choices=("pessimistic", "optimistic"), default="pessimistic")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
