"""How close the system comes to the ideal, and what it costs: ratios, printed and not kept.

The machine that measures also runs the cloud and draws the pictures, so absolute times say little; ratios, and
counts per shot, say more.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil

from localcloud.environment import equal_keys
from localcloud.progress import FINAL
from localcloud.queues import pause_queues
from localcloud.run import Wish, inbox
from localcloud.supervisor import Options, Supervisor

ECHO = """
import functions_framework.aio


@functions_framework.aio.http
async def entry(request):
    return await request.json() if request.method == "POST" else {}, 202
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench ARGS=…", description=__doc__)
    parser.add_argument("--tasks", type=int, default=20)
    parser.add_argument("--shots", type=int, default=9, help="per task")
    parser.add_argument("--keys", type=int, default=8)
    parser.add_argument("--slots", type=int, default=3, help="per key")
    parser.add_argument("--latency", type=float, default=1.0, help="seconds per drawing")
    parser.add_argument("--workers", type=int, default=1, help="generate processes")
    parser.add_argument("--only", choices=["flow", "entry"])
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lookbook-bench-") as directory:
        options = Options(
            keys=equal_keys(asked.keys, asked.slots),
            gemini_latency=asked.latency,
            generate_workers=asked.workers,
            extra={"LOG_LEVEL": "WARNING"},
            state=Path(directory),
        )
        if asked.only != "entry":
            asyncio.run(measure_flow(options, tasks=asked.tasks, shots=asked.shots))
        if asked.only != "flow":
            asyncio.run(measure_entry(options, Path(directory)))
    return 0


async def measure_flow(options: Options, *, tasks: int, shots: int) -> None:
    slots = sum(key.max_concurrent for key in options.keys)
    total = tasks * shots
    ideal = math.ceil(total / slots) * options.gemini_latency
    say(f"{tasks} tasks × {shots} shots on {slots} slots, drawing {options.gemini_latency} s")
    async with Supervisor(options) as system:
        await warm_up(system)
        for service in ("firestore", "tasks", "receiver"):
            await system.service(service).count_anew()
        await system.http.delete(f"{system.addresses.gemini}/stats")
        with cpu_seconds(system) as spent:
            begun, begun_at = time.monotonic(), time.time()
            wish = Wish(photo=system.addresses.sample, count=shots).body()
            finals = await follow(system, wish, tasks)
            makespan = time.monotonic() - begun
        stats = (await system.http.get(f"{system.addresses.gemini}/stats")).json()
        firestore = await system.service("firestore").counts()
        queue = await system.service("tasks").counts()
        callbacks = await until_steady(system)
        memory = peak_memory(system)

    drawn = stats["total"]
    say("  ended as", ", ".join(f"{n} {status}" for status, n in tally(finals).items()))
    say("  makespan ÷ ideal", f"{makespan / ideal:.2f}", f"({makespan:.1f} s ÷ {ideal:.1f} s)")
    first, last = drawing_times(stats)
    say(
        "  first drawing begins after",
        f"{first - begun_at:.2f} s; the last ends {begun_at + makespan - last:.2f} s before the last callback",
    )
    say("  slot use", f"{drawn['busySeconds'] / (slots * makespan):.0%}")
    say("  calls per shot", f"{drawn['calls'] / total:.2f}", f"429s {drawn['errors'].get('429', 0)}")
    over = [name for name, key in stats["keys"].items() if key["maxConcurrency"] > key["maxConcurrent"]]
    say("  keys over their limit", ", ".join(over) or "none")
    for kind in ("rpcs", "reads", "writes"):
        say(
            f"  Firestore {kind} per shot",
            f"{sum(firestore[kind].values()) / total:.2f}",
            shares(firestore[kind], total),
        )
    for kind in ("calls", "dispatches"):
        say(
            f"  Cloud Tasks {kind} per shot",
            f"{sum(queue[kind].values()) / total:.2f}",
            shares(queue[kind], total),
        )
    say("  callbacks per shot", f"{callbacks / total:.2f}")
    for name, seconds in spent.items():
        say(f"  CPU {name}", f"{seconds / total * 1000:.0f} ms per shot")
    for name, size in memory.items():
        say(f"  peak memory {name}", f"{size / 2**20:.0f} MiB")


async def measure_entry(options: Options, directory: Path) -> None:
    """POST, one at a time, against an entry whose queues stand still."""
    say("entry: POST, p50 / p99")
    async with Supervisor(options) as system:
        await pause_queues(system.addresses.tasks)
        photo = system.addresses.sample
        url = f"{system.urls['entry']}/tasks"
        for shots, times in ((1, 200), (9, 100), (500, 10)):
            told = await post_often(system, url, Wish(photo=photo, count=shots).body(), times)
            say(f"  {shots} shots", told)
    echo = directory / "echo"
    echo.mkdir()
    (echo / "main.py").write_text(ECHO)
    async with Supervisor(replace(options, source=echo, functions=("entry",))) as system:
        say("  a bare echo", await post_often(system, system.urls["entry"], Wish(photo="x").body(), 200))


async def post_often(system: Supervisor, url: str, body: dict[str, Any], times: int) -> str:
    took = []
    for number in range(times + 5):
        begun = time.perf_counter()
        answer = await system.http.post(url, json=body)
        if answer.status_code != 202:
            raise SystemExit(f"POST answered {answer.status_code}: {answer.text}")
        if number >= 5:
            took.append((time.perf_counter() - begun) * 1000)
    p99 = statistics.quantiles(took, n=100, method="inclusive")[98]
    return f"{statistics.median(took):.1f} / {p99:.1f} ms"


async def warm_up(system: Supervisor) -> None:
    """The first request pays for imports and connections."""
    await follow(system, Wish(photo=system.addresses.sample, count=2).body(), 1)


async def follow(system: Supervisor, wish: dict[str, Any], times: int) -> list[str]:
    """Submit, and wait for the final callbacks: nothing is asked of the system meanwhile. How the tasks ended."""
    url = f"{system.urls['entry']}/tasks"
    async with aclosing(inbox(system.http, system.addresses.receiver)) as arriving:
        # Each asks for something of its own: otherwise the cache would draw the first one only.
        wishes = [wish | {"prompt": f"variant {number}"} for number in range(times)]
        answers = await asyncio.gather(*(system.http.post(url, json=each) for each in wishes))
        refused = [answer for answer in answers if answer.status_code != 202]
        if refused:
            raise SystemExit(f"POST answered {refused[0].status_code}: {refused[0].text}")
        waiting = {answer.json()["taskId"] for answer in answers}
        ended: dict[str, str] = {}
        async for entry in arriving:
            body = entry["body"]
            if body["taskId"] in waiting and body["status"] in FINAL:
                ended[body["taskId"]] = body["status"]
            if len(ended) == times:
                break
        return list(ended.values())


async def until_steady(system: Supervisor) -> int:
    """How many callbacks came, once no more come."""
    before = -1
    while True:
        now = (await system.service("receiver").counts())["calls"].get("callback", 0)
        if now == before:
            return now
        before = now
        await asyncio.sleep(1)


@contextmanager
def cpu_seconds(system: Supervisor) -> Iterator[dict[str, float]]:
    """CPU time that each child, with its workers, spends inside the block."""
    begun = {name: _cpu(pid) for name, pid in system.pids.items()}
    spent: dict[str, float] = {}
    yield spent
    spent.update({name: _cpu(pid) - begun[name] for name, pid in system.pids.items()})


def _cpu(pid: int) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in _family(pid))


def _family(pid: int) -> list[psutil.Process]:
    leader = psutil.Process(pid)
    return [leader, *leader.children(recursive=True)]


def peak_memory(system: Supervisor) -> dict[str, int]:
    """The largest process of each child: on Linux its peak, elsewhere what it has now."""
    return {name: max(_peak(process) for process in _family(pid)) for name, pid in system.pids.items()}


def _peak(process: psutil.Process) -> int:
    status = Path(f"/proc/{process.pid}/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return int(process.memory_info().rss)


def drawing_times(stats: dict[str, Any]) -> tuple[float, float]:
    """When the first call to Gemini began and the last one ended, in Unix seconds."""
    used = [key for key in stats["keys"].values() if key["calls"]]
    return (
        min(datetime.fromisoformat(key["firstStart"]).timestamp() for key in used),
        max(datetime.fromisoformat(key["lastEnd"]).timestamp() for key in used),
    )


def tally(words: list[str]) -> dict[str, int]:
    return {word: words.count(word) for word in sorted(set(words))}


def shares(counts: dict[str, int], total: int) -> str:
    ranked = sorted(counts.items(), key=lambda item: -item[1])
    return "(" + ", ".join(f"{name} {count / total:.2f}" for name, count in ranked) + ")"


def say(what: str, *values: str) -> None:
    print(f"{what:32}", *values, flush=True)


if __name__ == "__main__":
    sys.exit(main())
