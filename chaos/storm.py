"""Carries out a plan on the running system, waits for calm, and reads the books."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx2
import psutil

from chaos.books import Books, Limits, Reader
from chaos.plan import Change, Death, Jump, Order, Plan, Spell
from localcloud.environment import Key
from localcloud.faults import Rule
from localcloud.services import ServiceName
from localcloud.supervisor import Function, Options, Supervisor

_LEASE, _UPLOAD = 4.0, 3.0
_SETTINGS: Final = {
    "GEMINI_TIMEOUT_SECONDS": "3",
    "LEASE_SECONDS": f"{_LEASE:g}",
    "UPLOAD_SECONDS": f"{_UPLOAD:g}",
    "SLOT_WAIT_SECONDS": "2",
    "OPENAI_TIMEOUT_SECONDS": "2",
    "CALLBACK_TIMEOUT_SECONDS": "2",
}
_POST_TRIES: Final = 60
_CLOCKS: Final = Path(__file__).parent / "clocks"

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """How the system is set up for a storm."""

    keys: Sequence[Key]
    state: Path
    """Where the logs go."""
    patience: float = 0.08
    """Of production's: what is lost is looked for after seconds, not minutes."""
    deadline: int = 60
    """Seconds that a task may take."""
    calm: float = 150
    """Seconds after the storm by which everything must have ended."""
    drawing: float = 0.6
    """Seconds that a picture takes."""
    believed: Sequence[Key] | None = None
    """What the functions are told about the keys, if it isn't true: for proving that the checks see it."""

    @property
    def clocks(self) -> Path:
        """Which process has which time."""
        return self.state / "clocks.json"

    def options(self) -> Options:
        told = self.believed or self.keys
        return Options(
            keys=told,
            gemini_latency=self.drawing,
            gemini_jitter=self.drawing,
            generate_workers=2,
            sweep_seconds=1,
            state=self.state,
            source=_CLOCKS,
            extra={
                **_SETTINGS,
                "STORM_CLOCKS": str(self.clocks),
                "PATIENCE": f"{self.patience:g}",
                "TASK_DEADLINE_SECONDS": str(self.deadline),
            },
        )

    def limits(self) -> Limits:
        return Limits(
            lease=timedelta(seconds=_LEASE),
            claim=timedelta(seconds=_LEASE + _UPLOAD),
            concurrency={key.id: key.max_concurrent for key in self.keys},
        )


@dataclass(slots=True)
class Diary:
    """What was done, by whom it may be read."""

    say: Say
    begun: float = field(default_factory=time.monotonic)
    accepted: dict[int, tuple[str, int]] = field(default_factory=dict)
    """Number of the order → id and size of its task."""
    crashes: list[tuple[datetime, datetime]] = field(default_factory=list)

    def note(self, text: str) -> None:
        self.say(f"{time.monotonic() - self.begun:6.1f} s  {text}")


async def weather(plan: Plan, how: Weather, say: Say) -> Books:
    """The whole storm, from an empty system to the books."""
    _set(how.clocks, {})
    async with Supervisor(how.options()) as system:
        reader = Reader(system.addresses, system.http)
        diary = Diary(say)
        await Storm(system, plan, diary, how.clocks).rage()
        await _calm(system, reader, diary, how.calm)
        return await reader.read(
            limits=how.limits(),
            accepted=dict(diary.accepted.values()),
            orders=len(plan.orders),
            crashes=tuple(diary.crashes),
        )


async def _calm(system: Supervisor, reader: Reader, diary: Diary, seconds: float) -> None:
    """Until all is final and told, or the time is up: the checks then say what is missing."""
    diary.note("the storm is over")
    try:
        async with asyncio.timeout(seconds):
            while any(left := await reader.unfinished()):
                system.check()
                await asyncio.sleep(0.5)
            diary.note("all is final and told")
    except TimeoutError:
        diary.note(f"after {seconds:g} s not final: {left[0]} tasks; not told: {left[1]} events")
    # What was leased last has run out then, whoever died holding it.
    await asyncio.sleep(_LEASE)


class Storm:
    def __init__(self, system: Supervisor, plan: Plan, diary: Diary, clocks: Path) -> None:
        self._system = system
        self._plan = plan
        self._diary = diary
        self._clocks = clocks
        self._http = httpx2.AsyncClient(trust_env=False, timeout=15)
        self._active: dict[ServiceName, list[tuple[Rule, ...]]] = {}
        self._rules = asyncio.Lock()
        self._placed = [asyncio.Event() for _ in plan.orders]
        self._is_over = asyncio.Event()
        self._lives = {name: asyncio.Lock() for name in ("entry", "generate", "complete")}

    async def rage(self) -> None:
        """Everything in the plan at its time; then the sky clears and everybody who died is back."""
        plan = self._plan
        jobs: list[tuple[float, Callable[[], Coroutine[Any, Any, None]]]] = [
            *((order.at, partial(self._place, number, order)) for number, order in enumerate(plan.orders)),
            *((spell.at, partial(self._cast, spell)) for spell in plan.spells),
            *((death.at, partial(self._kill, death)) for death in plan.deaths),
            *((jump.at, partial(self._jump, jump)) for jump in plan.jumps),
            *((change.at, partial(self._ask, change)) for change in plan.changes),
            (plan.seconds, self._clear),
        ]
        async with self._http, asyncio.TaskGroup() as group:
            for at, job in jobs:
                group.create_task(_after(at, job))

    async def _clear(self) -> None:
        self._is_over.set()
        async with self._rules:
            self._active.clear()
            for service in self._system.services:
                await self._system.service(service).behave()

    async def _cast(self, spell: Spell) -> None:
        self._diary.note(f"{spell.told()}, for {spell.seconds:.1f} s")
        await self._apply(spell, begins=True)
        await asyncio.sleep(spell.seconds)
        await self._apply(spell, begins=False)

    async def _apply(self, spell: Spell, *, begins: bool) -> None:
        async with self._rules:
            active = self._active.setdefault(spell.service, [])
            if begins:
                active.append(spell.rules)
            elif spell.rules in active:
                active.remove(spell.rules)
            await self._system.service(spell.service).misbehave(*(rule for rules in active for rule in rules))

    async def _kill(self, death: Death) -> None:
        if death.victim == "worker":
            await self._kill_worker()
            return
        function: Function = death.victim
        async with self._lives[function]:
            self._diary.note(f"kill -9 {function}, back after {death.down:g} s")
            begun = datetime.now(UTC)
            await self._system.kill(function)
            if function == "generate":
                self._diary.crashes.append((begun, datetime.now(UTC)))
            await asyncio.sleep(death.down)
            await self._system.restart(function)

    async def _kill_worker(self) -> None:
        """One worker alone: the others go on, and the master starts a new one."""
        async with self._lives["generate"]:
            worker = self._workers()[0]
            self._diary.note("kill -9 one worker of generate")
            begun = datetime.now(UTC)
            os.kill(worker.pid, signal.SIGKILL)
            self._diary.crashes.append((begun, datetime.now(UTC)))

    def _workers(self) -> list[psutil.Process]:
        """Of `generate`, the oldest first."""
        (master,) = psutil.Process(self._system.pids["generate"]).children()
        return sorted(master.children(), key=lambda process: process.create_time())

    async def _jump(self, jump: Jump) -> None:
        async with self._lives["generate"]:
            wrong = {worker.pid: by for worker, by in zip(self._workers(), jump.by, strict=False)}
            self._diary.note("clocks of generate: " + ", ".join(f"{by:+.1f} s" for by in wrong.values()))
            _set(self._clocks, wrong)

    async def _place(self, number: int, order: Order) -> None:
        """Asks until there is an answer, as a client with an idempotency key may."""
        body = {
            "mode": "photo_set" if order.count > 1 else "normal",
            "images": [self._system.addresses.sample],
            "params": {"scene": "商业摄影", "style": "现代简约", "count": order.count},
            "prompt": order.name,
            "promptCache": order.use_cache,
        }
        headers = {"idempotency-key": f"order-{self._plan.seed}-{number}"}
        answer = await self._insist(f"{self._system.urls['entry']}/tasks", json=body, headers=headers)
        if answer.status_code != 202:
            raise AssertionError(f"order {number} was answered {answer.status_code}: {answer.text}")
        self._diary.accepted[number] = (answer.json()["taskId"], order.count)
        self._placed[number].set()

    async def _ask(self, change: Change) -> None:
        """Until it is granted or too late: a shot may have to end first before it can be asked for again."""
        await self._placed[change.order].wait()
        task_id, _ = self._diary.accepted[change.order]
        where = f"/shots/{change.index}" if change.kind == "regenerate" else ""
        url = f"{self._system.urls['entry']}/tasks/{task_id}{where}:{change.kind}"
        while True:
            answer = await self._insist(url)
            if answer.status_code not in (202, 409):
                raise AssertionError(f"{url} was answered {answer.status_code}: {answer.text}")
            if answer.status_code == 202 or change.kind == "cancel" or self._is_over.is_set():
                break
            await asyncio.sleep(0.5)
        word = "granted" if answer.status_code == 202 else answer.json()["code"]
        self._diary.note(f"{change.kind} {task_id}{where}: {word}")

    async def _insist(self, url: str, **more: Any) -> httpx2.Response:
        for _ in range(_POST_TRIES):
            try:
                answer = await self._http.post(url, **more)
            except httpx2.TransportError:
                await asyncio.sleep(0.3)
                continue
            if answer.status_code < 500:
                return answer
            await asyncio.sleep(0.3)
        raise AssertionError(f"{url}: no answer in {_POST_TRIES} tries")


def _set(clocks: Path, wrong: dict[int, float]) -> None:
    """At once: nobody reads half of it."""
    new = clocks.with_suffix(".new")
    new.write_text(json.dumps(wrong))
    new.replace(clocks)


async def _after(seconds: float, job: Callable[[], Coroutine[Any, Any, None]]) -> None:
    await asyncio.sleep(seconds)
    await job()
