"""Breaks everything that can break, at random and from a seed, and then checks that nothing was lost or paid twice."""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

from chaos.books import Books
from chaos.invariants import CHECKS, violations
from chaos.plan import draw_plan
from chaos.storm import Weather, weather
from localcloud.environment import equal_keys

_SHOWN = 12


def main() -> int:
    parser = argparse.ArgumentParser(prog="make chaos ARGS=…", description=__doc__)
    parser.add_argument(
        "--seed", type=int, default=random.randrange(1_000_000), help="the same seed, the same plan"
    )
    parser.add_argument("--shots", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=60, help="how long the storm lasts")
    parser.add_argument(
        "--calm", type=float, default=150, help="how long everything may take to end after it"
    )
    parser.add_argument("--keep", action="store_true", help="keep the logs even if all is well")
    asked = parser.parse_args()
    keys = equal_keys(4, 2)
    plan = draw_plan(seed=asked.seed, shots=asked.shots, seconds=asked.seconds, keys=keys)
    print(
        f"seed {plan.seed}: {plan.shots} shots in {len(plan.orders)} tasks, {len(plan.spells)} spells, "
        f"{len(plan.deaths)} deaths, {len(plan.jumps)} jumps of clocks, {len(plan.changes)} changes "
        f"in {plan.seconds:g} s",
        flush=True,
    )
    state = Path(tempfile.mkdtemp(prefix="lookbook-chaos-"))
    books = asyncio.run(weather(plan, Weather(keys=keys, state=state, calm=asked.calm), say))
    summarise(books)
    found = violations(books)
    for check in CHECKS:
        sentences = found.get(check.__name__, [])
        print(f"  {'✗' if sentences else '✓'} {check.__name__.replace('_', ' ')}")
        for sentence in sentences[:_SHOWN]:
            print(f"      {sentence}")
        if len(sentences) > _SHOWN:
            print(f"      and {len(sentences) - _SHOWN} more")
    if found:
        print(f"seed {plan.seed}: broken; logs {state}")
        return 1
    if asked.keep:
        print(f"logs {state}")
    else:
        shutil.rmtree(state)
    print(f"seed {plan.seed}: all is well")
    return 0


def summarise(books: Books) -> None:
    tasks = Counter(task["status"] for task in books.tasks.values())
    shots = Counter(shot["status"] for _, shot in books.all_shots())
    total = books.stats["total"]
    print(f"tasks {dict(tasks)}, shots {dict(shots)}")
    print(
        f"Gemini: {total['calls']} calls, {total['ok']} pictures, {total['gone']} callers gone, {total['errors']}"
    )
    print(f"{len(books.events)} events, {len(books.inbox)} callbacks, {len(books.objects)} objects")


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
