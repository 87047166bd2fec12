"""A whole Lookbook in one loop on virtual time, driven by an adversary who decides what happens next.

Every call of the flow to Firestore or Cloud Tasks is parked; the driver lets one through at a time, in an order drawn
from a seed, or does something worse to it. Time moves only when nothing else can.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, TypeVar, cast

from google.api_core import exceptions as gexc

from shared import events
from shared.adapters.firestore import Documents, Write
from shared.adapters.firestore_keys import sync_writes
from shared.api import TaskIn
from shared.problems import Problem
from tests.properties.books import VIEW_AGE, Books, Violation, demand
from tests.properties.outside import JOB, Call, Job, Painter, Receiver, Store
from tests.properties.processes import Complete, Entry, Generate, Process, Surroundings, Variant
from tests.properties.scenario import TO_CALLS, TO_WAKES, Disturbance, Scenario
from tests.properties.stage import Stage
from tests.properties.virtual_clock import VirtualClock, until_idle
from tests.properties.wakes import Held, Wakes

T = TypeVar("T")

SLOW: Final = timedelta(seconds=20)
"""How long the calls of one handler may take in all."""
SWEEP_EVERY: Final = timedelta(minutes=1)
GRACE: Final = timedelta(minutes=15)
"""How long after its deadline a task may take to be closed, with all that is told of it."""
MOST_STEPS: Final = 20_000
ROLES: Final[dict[str, type[Process]]] = {
    "generate-0": Generate,
    "generate-1": Generate,
    "complete": Complete,
    "entry": Entry,
}


@dataclass(eq=False, slots=True, kw_only=True)
class _Op:
    """A call of a process that waits to be let through."""

    process: Process
    job: Job
    kind: str
    call: Callable[[], Awaitable[Any]]
    writes: Sequence[Write]
    answer: asyncio.Future[Any]
    held_until: datetime | None = None
    outcome: Any = None
    """The result or the error, of a call that was made and is answered later."""

    def __str__(self) -> str:
        paths = " ".join(write.path for write in self.writes)
        return f"{self.process.name} {self.kind} {paths}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    steps: int
    calls: int
    kills: int
    lasted: timedelta


class World:
    def __init__(self, stage: Stage, scenario: Scenario, variant: Variant | None = None) -> None:
        self._stage = stage
        self._scenario = scenario
        self._variant = variant or Variant()
        self._rng = random.Random(scenario.seed)
        self._clock = VirtualClock()
        self._begun = self._clock.now()
        self._client = stage.new_client()
        self._wakes = Wakes(self._clock)
        self._keys = {f"k{number}": key for number, key in enumerate(scenario.keys)}
        self._painter = Painter(
            self._clock, scenario.answers, provider_busy=self._variant.provider_busy, begun=self._call_begun
        )
        self._books = Books(
            peek=partial(stage.peek, self._client),
            clock=self._clock,
            painter=self._painter,
            keys={name: (key.domain, key.most) for name, key in self._keys.items()},
        )
        self._receivers = {events.NOTIFICATION: Receiver(), events.ANALYTICS: Receiver()}
        self._store = Store()
        self._around = Surroundings(
            stage=stage,
            client=self._client,
            gate=self,
            clock=self._clock,
            painter=self._painter,
            store=self._store,
            receivers=self._receivers,
            keys=list(self._keys),
            add_wake=self._wakes.add,
            variant=self._variant,
        )
        self._processes: dict[str, Process] = {}
        self._ops: list[_Op] = []
        self._to_calls: deque[str] = deque()
        self._to_wakes: deque[str] = deque()
        self._left = deque(scenario.disturbances)
        self._pause = self._left[0].after if self._left else 0
        self._next_sweep = self._clock.now() + SWEEP_EVERY
        self._calm_since: datetime | None = None
        self._surprise: BaseException | None = None
        self._jobs = self._steps = self._kills = 0
        self.story: list[str] = []
        """What happened, for whoever has to understand a violation."""

    async def run(self) -> Report:
        for name in ROLES:
            self._begin_process(name)
        try:
            await self._fill_pool()
            for count in self._scenario.tasks:
                self._submit(count)
            await self._drive()
            self._books.closed(self._receivers)
        except Violation as violation:
            violation.add_note("\n".join(self.story[-150:]))
            raise
        finally:
            for process in self._processes.values():
                process.kill()
            await until_idle()
            self._stage.forget(self._client)
        return Report(
            steps=self._steps,
            calls=len(self._painter.calls),
            kills=self._kills,
            lasted=self._clock.now() - self._begun,
        )

    async def passing(
        self, process: Process, kind: str, call: Callable[[], Awaitable[T]], writes: Sequence[Write] = ()
    ) -> T:
        """Parks a call until the driver lets it through."""
        if not process.alive:
            raise asyncio.CancelledError
        job = JOB.get()
        assert job is not None
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        op = _Op(process=process, job=job, kind=kind, call=call, writes=writes, answer=answer)
        self._ops.append(op)
        try:
            return await answer
        finally:
            if op in self._ops:
                self._ops.remove(op)

    async def _drive(self) -> None:
        while True:
            await until_idle()
            self._steps += 1
            demand(self._steps < MOST_STEPS, f"no end after {self._steps} steps")
            if self._surprise is not None:
                raise Violation(f"seen at the end of a step: {self._surprise!r}") from self._surprise
            self._disturb()
            now = self._clock.now()
            ready = [op for op in self._ops if op.held_until is None or op.held_until <= now]
            due = self._wakes.due()
            if not ready and not due:
                if self._is_over():
                    return
                self._pass_time()
                continue
            choice = self._rng.randrange(len(ready) + len(due))
            if choice < len(ready):
                await self._let_through(ready[choice])
            else:
                self._deliver(due[choice - len(ready)])

    def _is_over(self) -> bool:
        """Nothing can happen now. Has all been done, or is there more to wait for, and for how long?"""
        is_quiet = not self._jobs and not self._wakes.held and self._books.is_quiet()
        if self._left:
            self._pause = 0 if is_quiet else self._pause
            return False
        if is_quiet:
            return True
        now = self._clock.now()
        self._calm_since = self._calm_since or now
        limit = max(self._calm_since, self._books.last_deadline()) + GRACE
        demand(now < limit, f"not all is finished at {now}: {self._books.unfinished()}")
        return False

    def _pass_time(self) -> None:
        moments = [self._next_sweep, self._clock.next_alarm(), self._wakes.next_due()]
        moments += [op.held_until for op in self._ops]
        self._clock.advance(min(moment for moment in moments if moment is not None))
        if self._clock.now() >= self._next_sweep:
            self._next_sweep = self._clock.now() + SWEEP_EVERY
            if self._variant.sweeps:
                self._sweep()

    async def _let_through(self, op: _Op) -> None:
        if op.outcome is not None:
            self._answer(op)
            return
        fault = self._to_calls.popleft() if self._to_calls and op.process.alive else ""
        self._tell(f"{op} {fault}")
        op.held_until = None
        match fault:
            case "kill_before":
                self._kill(op.process)
                return
            case "slow_before" if self._held(op):
                return
            case "fail_before":
                op.outcome = self._failure(op)
            case _:
                op.outcome = await self._made(op)
        match fault:
            case "kill_after":
                self._kill(op.process)
                return
            case "repeat" if op.kind == "commit":
                op.outcome = await self._made(op)
            case "fail_after":
                op.outcome = self._failure(op)
            case "slow_after" if self._held(op):
                return
        self._answer(op)

    def _held(self, op: _Op) -> bool:
        """Whether it may take some time; then it does."""
        if op.job.delayed:
            return False
        self._delay(op, SLOW)
        op.held_until = self._clock.now() + SLOW
        return True

    def _delay(self, op: _Op, by: timedelta) -> None:
        op.job.delayed += by
        op.process.slow_until = self._clock.now() + by + VIEW_AGE

    async def _made(self, op: _Op) -> Any:
        before = self._books.before(op.writes)
        try:
            result = await op.call()
        except Exception as error:  # noqa: BLE001 - handed to whoever made the call
            return error
        self._books.committed(before, by=op.process.name)
        return (result,)

    def _failure(self, op: _Op) -> Exception:
        op.job.harmed = True
        return gexc.ServiceUnavailable("the adversary's answer")  # type: ignore[no-untyped-call]

    def _answer(self, op: _Op) -> None:
        if op in self._ops:
            self._ops.remove(op)
        if op.answer.done():
            return
        if isinstance(op.outcome, tuple):
            op.answer.set_result(op.outcome[0])
        else:
            op.answer.set_exception(op.outcome)

    def _deliver(self, held: Held) -> None:
        fault = self._to_wakes.popleft() if self._to_wakes else ""
        if fault == "lose" and held.may_be_lost:
            self._tell(f"lost {held.body}")
            self._wakes.lose(held)
            return
        held.again |= fault == "answer_lost"
        for _ in range(2 if fault == "twice" else 1):
            held.under_way += 1
            name = f"generate-{self._rng.randrange(2)}" if held.url == "generate" else "complete"
            process = cast(Generate | Complete, self._processes[name])
            brief = {key: value for key, value in held.body.items() if key != "events"}
            self._tell(f"delivered to {name}: {brief} {fault}")
            job = Job(process=process, task_id=held.body["taskId"], index=held.body.get("index", -1))
            self._spawn(job, process.handle(held.body), partial(self._answered, held))

    def _answered(self, held: Held, ok: bool) -> None:
        self._wakes.answered(held, ok=ok)

    def _spawn(
        self, job: Job, work: Coroutine[Any, Any, Any], then: Callable[[bool], None] = lambda ok: None
    ) -> None:
        self._jobs += 1

        def ended(task: asyncio.Task[Any]) -> None:
            self._jobs -= 1
            error = None if task.cancelled() else task.exception()
            ok = not task.cancelled() and (error is None or isinstance(error, Problem))
            outcome = "cancelled" if task.cancelled() else repr(error) if error else task.result()
            self._tell(f"{job.process.name} {job.task_id[-4:]}/{job.index} → {outcome}")
            if error is not None and not ok and not job.harmed and job.process.alive:
                self._unexpected(error)
            then(ok)

        job.process.spawn(job, work).add_done_callback(ended)

    def _unexpected(self, error: BaseException) -> None:
        """An error that nothing done from outside explains."""
        if not isinstance(error, ConnectionError):
            self._surprise = self._surprise or error

    def _begin_process(self, name: str) -> None:
        self._processes[name] = ROLES[name](
            name=name, around=self._around, rng=random.Random(self._rng.getrandbits(64))
        )

    def _kill(self, process: Process) -> None:
        if not process.alive:
            return
        self._tell(f"killed {process.name}")
        self._kills += 1
        process.kill()
        self._ops = [op for op in self._ops if op.process is not process]
        self._begin_process(process.name)

    def _disturb(self) -> None:
        while self._left and self._pause <= 0:
            self._do(self._left.popleft())
            self._pause = self._left[0].after if self._left else 0
        self._pause -= 1

    def _do(self, disturbance: Disturbance) -> None:
        kind, which = disturbance.kind, disturbance.which
        tasks = self._books.tasks
        if kind in TO_CALLS:
            self._to_calls.append(kind)
            return
        if kind in TO_WAKES:
            self._to_wakes.append(kind)
            return
        self._tell(f"{kind} {which}")
        match kind:
            case "kill":
                names = list(ROLES)
                self._kill(self._processes[names[which % len(names)]])
            case "submit":
                self._submit(1 + which % 3)
            case "sweep" | "two_sweeps":
                for _ in range(1 if kind == "sweep" else 2):
                    self._sweep()
            case "store_fails":
                self._store.failures += 1 + which % 5
            case "store_refuses":
                self._store.refusals += 1 + which % 3
            case "receiver_refuses":
                self._receivers[events.NOTIFICATION].refusals += 1 + which
            case "pass_time":
                self._pass_time_meanwhile(timedelta(seconds=which))
            case "cancel" | "retry" | "regenerate" if tasks:
                self._ask(kind, tasks[which % len(tasks)], which)

    def _pass_time_meanwhile(self, by: timedelta) -> None:
        """Calls may be under way while time passes, but not for long."""
        if all(op.job.delayed + by <= SLOW for op in self._ops):
            for job in {id(op.job): op for op in self._ops}.values():
                self._delay(job, by)
            self._clock.advance(self._clock.now() + by)

    def _ask(self, kind: str, task_id: str, which: int) -> None:
        entry = cast(Entry, self._processes["entry"])
        job = Job(process=entry, task_id=task_id)
        match kind:
            case "cancel":
                self._spawn(job, entry.changes.cancel(task_id))
            case "retry":
                self._spawn(job, entry.changes.retry(task_id))
            case _:
                self._spawn(job, entry.changes.regenerate(task_id, which % 2))

    def _submit(self, count: int) -> None:
        entry = cast(Entry, self._processes["entry"])
        request = TaskIn.model_validate(
            {
                "images": ["https://photos.example/garment.jpg"],
                "params": {"count": count},
                "promptCache": self._scenario.cache,
            }
        )
        work = entry.reception.submit(
            request, user_id="somebody", trace_id="0" * 31 + "1", idempotency_key=None
        )
        self._spawn(Job(process=entry), work)

    def _sweep(self) -> None:
        complete = cast(Complete, self._processes["complete"])
        self._spawn(Job(process=complete), complete.sweep.run())

    def _call_begun(self, call: Call) -> None:
        self._tell(f"call on {call.key_id} for {call.job.task_id[-4:]}/{call.job.index}: {call.outcome}")
        try:
            self._books.call_begun(call)
        except Violation as violation:
            self._surprise = self._surprise or violation

    async def _fill_pool(self) -> None:
        documents = Documents(self._client, rng=self._rng)
        for name, key in self._keys.items():
            await documents.commit(
                *sync_writes(
                    key_id=name,
                    weight=key.weight,
                    max_concurrent=key.most,
                    quota_domain=key.domain,
                    known=None,
                    known_slots={},
                    now=self._clock.now(),
                )
            )

    def _tell(self, line: str) -> None:
        self.story.append(f"{self._clock.now():%H:%M:%S} {self._steps} {line}")
