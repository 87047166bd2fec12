"""The rules of dispatch on virtual time, with a worker that is a function."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localcloud.tasks.call import HttpCall
from localcloud.tasks.engine import Engine
from localcloud.tasks.queue import Queue, QueueState, RateLimits, RetryConfig
from localcloud.tasks.store import NoStore
from localcloud.tasks.task import Outcome

NAME = "projects/p/locations/l/queues/q"
CALL = HttpCall(url="http://worker/")


def answer(status, **more):
    return Outcome(status=status, reason=f"HTTP status code {status}", **more)


class Bench:
    """An engine whose deliveries are recorded as seconds since the start."""

    def __init__(self, clock, *, takes=0.0, reply=lambda delivery: answer(200)):
        self.clock, self.takes, self.reply = clock, takes, reply
        self.start = clock.now()
        self.times = []
        self.engine = Engine(clock=clock, random=random.Random(1), deliver=self._deliver, store=NoStore())

    async def _deliver(self, delivery):
        self.times.append(round((self.clock.now() - self.start).total_seconds(), 3))
        if self.takes:
            await self.clock.sleep(self.takes)
        return self.reply(delivery)

    def queue(self, **settings):
        return self.engine.create_queue(Queue(name=NAME, **settings))

    def tasks(self, number=1, **fields):
        return [self.engine.create_task(NAME, name=None, call=CALL, **fields) for _ in range(number)]


def test_backoff_doubles_then_grows_straight_then_stays_level():
    retry = RetryConfig(
        min_backoff=timedelta(seconds=10), max_backoff=timedelta(seconds=300), max_doublings=3
    )
    waits = [retry.backoff(number).total_seconds() for number in range(1, 10)]
    assert waits == [10, 20, 40, 80, 160, 240, 300, 300, 300]


@given(
    st.floats(0, 1000),
    st.floats(0, 100_000),
    st.integers(0, 2**31 - 1),
    st.integers(1, 2**31 - 1),
)
def test_backoff_never_shrinks_and_stays_within_its_bounds(low, high, doublings, number):
    low, high = sorted((low, high))
    retry = RetryConfig(
        min_backoff=timedelta(seconds=low), max_backoff=timedelta(seconds=high), max_doublings=doublings
    )
    wait = retry.backoff(number)
    assert retry.min_backoff <= wait + timedelta(microseconds=1)
    assert wait <= retry.max_backoff
    assert wait <= retry.backoff(number + 1)


async def test_rate_is_kept_after_the_burst(virtual):
    bench = Bench(virtual)
    bench.queue(rate_limits=RateLimits(max_dispatches_per_second=2))
    bench.tasks(20)
    await virtual.run(10)
    assert bench.times[:10] == [0.0] * 10
    assert bench.times[10:] == pytest.approx([0.5 * n for n in range(1, 11)], abs=0.001)


async def test_rate_below_one_a_second_works(virtual):
    bench = Bench(virtual)
    bench.queue(rate_limits=RateLimits(max_dispatches_per_second=0.1))
    bench.tasks(12)
    await virtual.run(25)
    assert bench.times[10:] == pytest.approx([10, 20], abs=0.001)


async def test_concurrency_is_bounded_and_a_free_place_is_used_at_once(virtual):
    bench = Bench(virtual, takes=3)
    bench.queue(rate_limits=RateLimits(max_concurrent_dispatches=2))
    bench.tasks(5)
    await virtual.run(20)
    assert bench.times == [0, 0, 3, 3, 6]


async def test_attempts_and_duration_must_both_be_reached(virtual):
    bench = Bench(virtual, reply=lambda _: answer(500))
    second = timedelta(seconds=1)
    bench.queue(
        retry_config=RetryConfig(
            max_attempts=2, max_retry_duration=5 * second, min_backoff=second, max_backoff=second
        )
    )
    bench.tasks()
    await virtual.run(60)
    assert bench.times == [0, 1, 2, 3, 4, 5]
    assert list(bench.engine.tasks_after(NAME, 0)) == []


async def test_task_without_limits_is_retried_until_it_is_31_days_old(virtual):
    bench = Bench(virtual, reply=lambda _: answer(500))
    day = timedelta(days=1)
    bench.queue(retry_config=RetryConfig(max_attempts=-1, min_backoff=day, max_backoff=day))
    bench.tasks()
    await virtual.run(40 * 86_400)
    assert len(bench.times) == 31
    assert list(bench.engine.tasks_after(NAME, 0)) == []


async def test_retry_after_is_waited_for(virtual):
    replies = iter([answer(400, retry_after=timedelta(seconds=42)), answer(200)])
    bench = Bench(virtual, reply=lambda _: next(replies))
    bench.queue()
    bench.tasks()
    await virtual.run(60)
    assert bench.times == [0, 42]


@pytest.mark.parametrize(("status", "is_slowed"), [(429, True), (503, True), (500, False)])
async def test_overloaded_worker_slows_the_whole_queue_for_a_while(virtual, status, is_slowed):
    replies = iter([answer(status)] * 8)
    bench = Bench(virtual, reply=lambda _: next(replies, answer(200)))
    hour = timedelta(hours=1)
    bench.queue(
        rate_limits=RateLimits(max_dispatches_per_second=10),
        retry_config=RetryConfig(min_backoff=hour, max_backoff=hour),
    )
    bench.tasks(8)
    await virtual.run(0)
    bench.tasks(40)
    await virtual.run(1)
    assert (len(bench.times) < 12) is is_slowed
    await virtual.run(300)
    assert len(bench.times) == 48


async def test_run_task_needs_no_token_and_no_place(virtual):
    bench = Bench(virtual, takes=100)
    bench.queue(rate_limits=RateLimits(max_concurrent_dispatches=1))
    first, second = bench.tasks(2)
    bench.engine.run_task(NAME, second.name)
    bench.engine.run_task(NAME, first.name)
    await virtual.run(0)
    assert bench.times == [0, 0, 0]  # the first is running twice, as the service allows
    await virtual.run(200)
    assert list(bench.engine.tasks_after(NAME, 0)) == []


async def test_failed_forced_run_is_retried_from_the_time_of_the_call(virtual):
    replies = iter([answer(500), answer(200)])
    bench = Bench(virtual, takes=5, reply=lambda _: next(replies))
    bench.queue(retry_config=RetryConfig(min_backoff=timedelta(seconds=20)))
    (task,) = bench.tasks(schedule_time=virtual.now() + timedelta(hours=1))
    bench.engine.run_task(NAME, task.name)
    await virtual.run(100)
    assert bench.times == [0, 20]


async def test_deliverer_that_breaks_is_a_failed_attempt(virtual):
    outcomes = iter([RuntimeError("boom"), None])

    def reply(_):
        error = next(outcomes)
        if error:
            raise error
        return answer(200)

    bench = Bench(virtual, reply=reply)
    bench.queue()
    bench.tasks()
    await virtual.run(10)
    assert bench.times == [0, 0.1]


async def test_task_deleted_while_running_is_not_retried(virtual):
    bench = Bench(virtual, takes=5, reply=lambda _: answer(500))
    bench.queue()
    (task,) = bench.tasks()
    await virtual.run(1)
    bench.engine.delete_task(NAME, task.name)
    await virtual.run(1000)
    assert bench.times == [0]


async def test_raised_limits_take_effect_at_once(virtual):
    bench = Bench(virtual, takes=50)
    bench.queue(rate_limits=RateLimits(max_concurrent_dispatches=1))
    bench.tasks(3)
    await virtual.run(1)
    limits = RateLimits(max_concurrent_dispatches=3)
    bench.engine.update_queue(NAME, lambda queue: Queue(name=queue.name, rate_limits=limits))
    await virtual.run(1)
    assert bench.times == [0, 1, 1]


async def test_pause_holds_a_retry_too(virtual):
    replies = iter([answer(500), answer(200)])
    bench = Bench(virtual, reply=lambda _: next(replies))
    bench.queue()
    bench.tasks()
    await virtual.run(0.05)
    bench.engine.set_state(NAME, QueueState.PAUSED)
    await virtual.run(30)
    bench.engine.set_state(NAME, QueueState.RUNNING)
    await virtual.run(1)
    assert bench.times == [0, 30.05]


@pytest.mark.parametrize(("status", "is_slowed"), [(500, True), (200, False)])
async def test_queue_slows_down_when_nearly_all_answers_are_errors(virtual, status, is_slowed):
    replies = iter([answer(status)] * 200)
    bench = Bench(virtual, reply=lambda _: next(replies, answer(200)))
    bench.queue(
        rate_limits=RateLimits(max_dispatches_per_second=10),
        retry_config=RetryConfig(max_attempts=1),
    )
    bench.tasks(400)
    await virtual.run(30)
    unhindered = 10 + 30 * 10
    assert (len(bench.times) < unhindered * 0.9) is is_slowed
    await virtual.run(120)
    assert len(bench.times) == 400  # and it recovers


async def test_wait_longer_than_any_calendar_ends_the_task(virtual):
    bench = Bench(virtual, reply=lambda _: answer(500))
    ages = timedelta(days=300_000_000)
    bench.queue(retry_config=RetryConfig(max_attempts=-1, min_backoff=ages, max_backoff=ages))
    bench.tasks()
    await virtual.run(1)
    assert bench.times == [0]
    assert list(bench.engine.tasks_after(NAME, 0)) == []


async def test_thousands_of_scheduled_tasks_run_in_their_order(virtual):
    bench = Bench(virtual)
    bench.queue()
    start = virtual.now()
    for number in range(3000):
        seconds = number * 7919 % 3000
        bench.tasks(schedule_time=start + timedelta(seconds=seconds))
    await virtual.run(3000)
    assert len(bench.times) == 3000
    assert bench.times == sorted(bench.times)
    assert all(time == pytest.approx(second, abs=0.001) for second, time in enumerate(bench.times))


async def test_what_is_gone_takes_no_room(virtual):
    bench = Bench(virtual)
    bench.queue()
    bench.engine.set_state(NAME, QueueState.PAUSED)
    for _ in range(50):
        for task in bench.tasks(100):
            bench.engine.delete_task(NAME, task.name)
    dispatcher = bench.engine._dispatchers[NAME]
    assert len(dispatcher._order) <= 100
    assert len(dispatcher._heap) <= 100
    assert len(bench.engine._taken[NAME]) == 5000
    await virtual.run(timedelta(hours=24).total_seconds())
    bench.tasks()
    assert len(bench.engine._taken[NAME]) == 0
