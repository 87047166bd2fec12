"""When a queue's tasks run: one dispatcher per queue, woken by events and the next due time, never polling.

It knows nothing of HTTP: a delivery goes through the `deliver` that it is given, and what happened is told to
a `Journal` before anybody else hears of it.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from localcloud.tasks.pace import Pace
from localcloud.tasks.queue import RETENTION, Queue, QueueState
from localcloud.tasks.task import Attempt, Delivery, Outcome, Task, delivery_of
from shared.clock import Clock

log = logging.getLogger(__name__)

Deliver = Callable[[Delivery], Awaitable[Outcome]]

_SHORTEST_SLEEP = 50e-6
"""So that a rounding error of the clock costs one more look, not a busy loop."""
_LONGEST_SLEEP = 86_400.0


class Journal(Protocol):
    def progressed(self, task: Task) -> None: ...

    def ended(self, queue: str, names: list[str]) -> None: ...


@dataclass(slots=True, eq=False)
class _Entry:
    task: Task
    running: int = 0
    """Deliveries under way: more than one only after RunTask."""
    ticket: int | None = None
    """Which item of the heap is this task's valid one; none: it isn't waiting."""


class Dispatcher:
    def __init__(self, queue: Queue, *, clock: Clock, deliver: Deliver, journal: Journal) -> None:
        self._queue = queue
        self._clock = clock
        self._deliver = deliver
        self._journal = journal
        self._pace = Pace(queue.rate_limits, clock.now())
        self._entries: dict[str, _Entry] = {}
        self._order: list[_Entry] = []
        """In the order of creation, with gone ones among them until they are too many."""
        self._heap: list[tuple[datetime, int, _Entry]] = []
        self._tickets = 0
        self._running = 0
        self._deliveries: set[asyncio.Task[None]] = set()
        self._timer: asyncio.Task[None] | None = None
        self._wake_at: datetime | None = None
        self._is_stopped = False

    @property
    def queue(self) -> Queue:
        return self._queue

    @property
    def is_busy(self) -> bool:
        return bool(self._deliveries)

    def change(self, queue: Queue) -> None:
        """New settings or another state; tasks that are running go on."""
        self._pace.change(queue.rate_limits, self._clock.now())
        self._queue = queue
        self._pump()

    def add(self, task: Task) -> None:
        entry = _Entry(task)
        self._entries[task.name] = entry
        self._order.append(entry)
        self._wait(entry)
        self._pump()

    def get(self, name: str) -> Task | None:
        entry = self._entries.get(name)
        return entry.task if entry else None

    def tasks_after(self, number: int) -> Iterator[Task]:
        """In the order of creation."""
        start = bisect_right(self._order, number, key=lambda entry: entry.task.number)
        for index in range(start, len(self._order)):
            entry = self._order[index]
            if self._entries.get(entry.task.name) is entry:
                yield entry.task

    def remove(self, name: str) -> bool:
        """Whether it was there. An attempt under way goes on; its answer will mean nothing."""
        entry = self._entries.pop(name, None)
        if entry is None:
            return False
        entry.ticket = None
        self._forget_stale()
        return True

    def clear(self) -> list[str]:
        names = list(self._entries)
        self._entries.clear()
        self._order.clear()
        self._heap.clear()
        return names

    def run_now(self, name: str) -> Task | None:
        """Start an attempt whatever the pace, the state and the schedule say."""
        entry = self._entries.get(name)
        if entry is None:
            return None
        now = self._clock.now()
        self._start(entry, now, forced_at=now)
        self._forget_stale()
        return entry.task

    async def stop(self) -> None:
        """Start nothing more and break off what is under way, as if the process had died."""
        self.retire()
        for delivery in self._deliveries:
            delivery.cancel()
        await asyncio.gather(*self._deliveries, return_exceptions=True)

    def retire(self) -> None:
        """Start nothing more."""
        self._is_stopped = True
        self._cancel_timer()

    def _wait(self, entry: _Entry) -> None:
        self._tickets += 1
        entry.ticket = self._tickets
        heapq.heappush(self._heap, (entry.task.progress.schedule_time, self._tickets, entry))

    def _forget_stale(self) -> None:
        if len(self._heap) > 64 and len(self._heap) > 2 * len(self._entries):
            self._heap = [item for item in self._heap if item[2].ticket == item[1]]
            heapq.heapify(self._heap)
        if len(self._order) > 64 and len(self._order) > 2 * len(self._entries):
            self._order = list(self._entries.values())

    def _pump(self) -> None:
        """Start everything that may start now, and see to being woken when the next thing may."""
        if self._is_stopped or self._queue.state is not QueueState.RUNNING:
            self._cancel_timer()
            return
        now = self._clock.now()
        while self._heap:
            due, ticket, entry = self._heap[0]
            if entry.ticket != ticket:
                heapq.heappop(self._heap)
                continue
            if due > now:
                self._wake(due, now)
                return
            if self._running >= self._queue.rate_limits.max_concurrent_dispatches:
                return  # the next answer pumps again
            seconds = self._pace.wait(now)
            if seconds > 0:
                self._wake(now + timedelta(seconds=max(seconds, _SHORTEST_SLEEP)), now)
                return
            heapq.heappop(self._heap)
            if now - entry.task.create_time >= RETENTION:
                self._end(entry)
                continue
            self._pace.take()
            self._start(entry, now)

    def _wake(self, at: datetime, now: datetime) -> None:
        if self._timer is not None:
            if self._wake_at is not None and self._wake_at <= at:
                return
            self._timer.cancel()
        self._wake_at = at
        seconds = min(max((at - now).total_seconds(), _SHORTEST_SLEEP), _LONGEST_SLEEP)
        self._timer = asyncio.get_running_loop().create_task(self._sleep(seconds))

    async def _sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self._timer = None
        self._pump()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start(self, entry: _Entry, now: datetime, *, forced_at: datetime | None = None) -> None:
        delivery = delivery_of(entry.task, self._queue)
        progress = entry.task.progress.dispatched(now)
        entry.task = replace(entry.task, progress=progress)
        entry.ticket = None
        self._journal.progressed(entry.task)
        entry.running += 1
        self._running += 1
        attempt = Attempt(schedule_time=progress.schedule_time, dispatch_time=now)
        under_way = asyncio.get_running_loop().create_task(self._attempt(entry, delivery, attempt, forced_at))
        self._deliveries.add(under_way)
        under_way.add_done_callback(self._deliveries.discard)

    async def _attempt(
        self, entry: _Entry, delivery: Delivery, attempt: Attempt, forced_at: datetime | None
    ) -> None:
        try:
            outcome = await self._deliver_in_time(delivery, entry.task.dispatch_deadline)
        except Exception as error:  # noqa: BLE001  whatever one delivery dies of, the queue goes on
            log.warning("delivery of %s failed: %r", delivery.task, error)
            outcome = Outcome(status=None, reason=f"Delivery failed ({type(error).__name__})")
        finally:
            entry.running -= 1
            self._running -= 1
        self._settle(entry, attempt, outcome, forced_at)
        self._pump()

    async def _deliver_in_time(self, delivery: Delivery, deadline: timedelta) -> Outcome:
        loop = asyncio.get_running_loop()
        sleeper = loop.create_task(self._clock.sleep(deadline.total_seconds()))
        is_over = False
        try:
            # The deadline is a time of our clock, which need not be the loop's.
            async with asyncio.timeout(None) as limit:

                def expire(_: asyncio.Task[None]) -> None:
                    if not is_over:
                        limit.reschedule(loop.time())

                sleeper.add_done_callback(expire)
                return await self._deliver(delivery)
        except TimeoutError:
            return Outcome(status=None, reason="Dispatch deadline exceeded", timed_out=True)
        finally:
            is_over = True
            sleeper.cancel()

    def _settle(self, entry: _Entry, attempt: Attempt, outcome: Outcome, forced_at: datetime | None) -> None:
        now = self._clock.now()
        self._pace.answered(now, failed=not outcome.is_success, overloaded=outcome.is_overload)
        task = entry.task
        if self._entries.get(task.name) is not entry:
            return
        if outcome.is_success:
            self._end(entry)
            return
        progress = task.progress.answered(attempt, outcome, now)
        if entry.running == 0:
            retry = task.retry_config or self._queue.retry_config
            first = progress.first_dispatch or now
            delay = max(retry.backoff(progress.dispatch_count), outcome.retry_after or timedelta(0))
            due = (forced_at or now) + delay
            exhausted = retry.is_exhausted(attempts=progress.dispatch_count, first_attempt=first, now=now)
            if exhausted or due - task.create_time >= RETENTION:
                self._end(entry)
                return
            progress = replace(progress, schedule_time=due)
        entry.task = replace(task, progress=progress)
        self._journal.progressed(entry.task)
        if entry.running == 0:
            self._wait(entry)

    def _end(self, entry: _Entry) -> None:
        entry.ticket = None
        self._entries.pop(entry.task.name, None)
        self._forget_stale()
        self._journal.ended(self._queue.name, [entry.task.name])
