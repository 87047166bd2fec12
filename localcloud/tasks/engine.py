"""What Cloud Tasks does, with no wire: queues, tasks, lists, names that stay taken.

Resource names are checked by the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta, tzinfo
from random import Random
from typing import NoReturn
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from localcloud.tasks.call import HttpCall
from localcloud.tasks.dispatcher import Deliver, Dispatcher
from localcloud.tasks.errors import AlreadyExists, FailedPrecondition, InvalidArgument, NotFound
from localcloud.tasks.names import location_of
from localcloud.tasks.queue import Queue, QueueState, RetryConfig
from localcloud.tasks.store import Store
from localcloud.tasks.task import DEFAULT_DEADLINE, Progress, Task
from localcloud.tasks.tombstones import Tombstones
from shared.clock import Clock

NAME_TAKEN_FOR = timedelta(hours=24)
QUEUE_NAME_TAKEN_FOR = timedelta(days=3)
FURTHEST_SCHEDULE = timedelta(days=30)
_FORGET_EVERY = timedelta(minutes=1)
_MANY_TAKEN = 1000

NO_QUEUE = (
    "Queue does not exist. If you just created the queue, wait at least a minute for the queue to initialize."
)
NO_ENTITY = "Requested entity was not found."


class Engine:
    def __init__(
        self,
        *,
        clock: Clock,
        random: Random,
        deliver: Deliver,
        store: Store,
        queue_name_taken_for: timedelta = QUEUE_NAME_TAKEN_FOR,
    ) -> None:
        self._clock = clock
        self._random = random
        self._deliver = deliver
        self._store = store
        self._queue_name_taken_for = queue_name_taken_for
        self._dispatchers: dict[str, Dispatcher] = {}
        self._taken: dict[str, Tombstones] = {}
        """Of each queue: which names of its gone tasks are taken."""
        self._taken_queues: dict[str, datetime] = {}
        self._retired: list[Dispatcher] = []
        """Of deleted queues: their last attempts may still be under way."""
        self._number = 0
        self._forget_at = clock.now()

    def resume(self) -> None:
        """Take up what the store holds, and go on dispatching it."""
        self._store.forget_buried(self._clock.now())
        saved = self._store.load()
        self._taken_queues = dict(saved.taken_queues)
        for queue in saved.queues:
            self._open(queue)
        for queue_name, name, until in saved.tombstones:
            self._taken[queue_name].add(name, until)
        for queue_name, task in saved.tasks:
            self._number = max(self._number, task.number)
            self._dispatchers[queue_name].add(task)

    def reset(self) -> None:
        """Forget every queue, every task and every name that was taken."""
        for name in list(self._dispatchers):
            self._close(name)
        self._taken_queues.clear()
        self._store.clear()

    async def stop(self) -> None:
        for dispatcher in [*self._dispatchers.values(), *self._retired]:
            await dispatcher.stop()

    # -- queues

    def create_queue(self, queue: Queue) -> Queue:
        if queue.name in self._dispatchers:
            raise AlreadyExists("Queue already exists")
        self._refuse_taken_queue(queue.name)
        return self._put(queue)

    def update_queue(self, name: str, change: Callable[[Queue], Queue]) -> Queue:
        """Makes the queue if it isn't there, as the service does."""
        dispatcher = self._dispatchers.get(name)
        if dispatcher is None:
            self._refuse_taken_queue(name)
        return self._put(change(dispatcher.queue if dispatcher else Queue(name=name)))

    def get_queue(self, name: str) -> Queue:
        return self._existing(name).queue

    def queues_after(self, location: str, name: str) -> Iterator[Queue]:
        """The location's queues, in the order of their names."""
        names = sorted(
            known for known in self._dispatchers if location_of(known) == location and known > name
        )
        return (self._dispatchers[known].queue for known in names)

    def delete_queue(self, name: str) -> None:
        if name not in self._dispatchers:
            raise NotFound(NO_ENTITY)
        until = self._clock.now() + self._queue_name_taken_for
        self._store.delete_queue(name, until)
        self._close(name)
        if len(self._taken_queues) >= _MANY_TAKEN:
            now = self._clock.now()
            self._taken_queues = {gone: end for gone, end in self._taken_queues.items() if end > now}
        self._taken_queues[name] = until

    def purge_queue(self, name: str) -> Queue:
        dispatcher = self._existing(name)
        self.ended(name, dispatcher.clear())
        return self._put(replace(dispatcher.queue, purge_time=self._clock.now()))

    def set_state(self, name: str, state: QueueState) -> Queue:
        return self._put(replace(self._existing(name).queue, state=state))

    # -- tasks

    def create_task(
        self,
        queue: str,
        *,
        name: str | None,
        call: HttpCall,
        schedule_time: datetime | None = None,
        dispatch_deadline: timedelta = DEFAULT_DEADLINE,
        retry_config: Callable[[RetryConfig], RetryConfig] | None = None,
        check: Callable[[Task], None] = lambda _: None,
    ) -> Task:
        """`retry_config` makes the task's own settings from its queue's; `check` may refuse the whole."""
        dispatcher = self._existing(queue)
        now = self._clock.now()
        if schedule_time is not None and schedule_time - now > FURTHEST_SCHEDULE:
            told = schedule_time.astimezone(_googles_time()).isoformat(timespec="seconds")
            raise InvalidArgument(
                f"The Task.scheduleTime, {told}, is too far in the future. "
                "Schedule time must be no more than 720h in the future."
            )
        if name is None:
            name = self._free_name(dispatcher, now)
        else:
            self._refuse_taken(name, dispatcher, now)
        self._number += 1
        task = Task(
            name=name,
            number=self._number,
            call=call,
            create_time=now,
            dispatch_deadline=dispatch_deadline,
            retry_config=retry_config(dispatcher.queue.retry_config) if retry_config else None,
            progress=Progress(schedule_time=max(schedule_time or now, now)),
        )
        check(task)
        self._store.add_task(queue, task)
        dispatcher.add(task)
        return task

    def get_task(self, queue: str, name: str) -> Task:
        dispatcher = self._existing(queue)
        return dispatcher.get(name) or self._missing(dispatcher, name)

    def tasks_after(self, queue: str, number: int) -> Iterator[Task]:
        """The queue's tasks, in the order of their creation."""
        return self._existing(queue).tasks_after(number)

    def delete_task(self, queue: str, name: str) -> None:
        dispatcher = self._existing(queue)
        if not dispatcher.remove(name):
            self._missing(dispatcher, name)
        self.ended(queue, [name])

    def run_task(self, queue: str, name: str) -> Task:
        dispatcher = self._existing(queue)
        return dispatcher.run_now(name) or self._missing(dispatcher, name)

    # -- the dispatchers' journal

    def progressed(self, task: Task) -> None:
        self._store.save_progress(task)

    def ended(self, queue: str, names: list[str]) -> None:
        now = self._clock.now()
        until = now + NAME_TAKEN_FOR
        self._store.bury(queue, names, until)
        taken = self._taken[queue]
        for name in names:
            taken.add(name, until)
        if now >= self._forget_at:
            self._forget_at = now + _FORGET_EVERY
            self._store.forget_buried(now)

    # -- inside

    def _open(self, queue: Queue) -> None:
        self._taken[queue.name] = Tombstones()
        self._dispatchers[queue.name] = Dispatcher(
            queue, clock=self._clock, deliver=self._deliver, journal=self
        )

    def _close(self, name: str) -> None:
        dispatcher = self._dispatchers.pop(name)
        del self._taken[name]
        dispatcher.retire()
        dispatcher.clear()
        self._retired = [gone for gone in self._retired if gone.is_busy] + [dispatcher]

    def _put(self, queue: Queue) -> Queue:
        self._store.save_queue(queue)
        dispatcher = self._dispatchers.get(queue.name)
        if dispatcher:
            dispatcher.change(queue)
        else:
            self._open(queue)
        return queue

    def _existing(self, queue: str) -> Dispatcher:
        dispatcher = self._dispatchers.get(queue)
        if dispatcher is None:
            raise NotFound(NO_QUEUE)
        return dispatcher

    def _missing(self, dispatcher: Dispatcher, name: str) -> NoReturn:
        if self._taken[dispatcher.queue.name].holds(name, self._clock.now()):
            raise NotFound(
                "The task no longer exists, though a task with this name existed recently. "
                "The task either successfully completed or was deleted."
            )
        raise NotFound(NO_ENTITY)

    def _refuse_taken(self, name: str, dispatcher: Dispatcher, now: datetime) -> None:
        if dispatcher.get(name):
            raise AlreadyExists("Requested entity already exists")
        if self._taken[dispatcher.queue.name].holds(name, now):
            raise AlreadyExists(
                "The task cannot be created because a task with this name existed too recently. For more "
                "information about task de-duplication see https://cloud.google.com/tasks/docs/reference/rest/"
                "v2/projects.locations.queues.tasks/create#body.request_body.FIELDS.task."
            )

    def _refuse_taken_queue(self, name: str) -> None:
        until = self._taken_queues.pop(name, None)
        if until is None or until <= self._clock.now():
            return
        self._taken_queues[name] = until
        raise FailedPrecondition(
            "The queue cannot be created because a queue with this name existed too recently."
        )

    def _free_name(self, dispatcher: Dispatcher, now: datetime) -> str:
        queue = dispatcher.queue.name
        while True:
            name = f"{queue}/tasks/{self._random.randrange(10**18, 10**19)}"
            if not dispatcher.get(name) and not self._taken[queue].holds(name, now):
                return name


def _googles_time() -> tzinfo:
    try:
        return ZoneInfo("America/Los_Angeles")
    except ZoneInfoNotFoundError:  # no time-zone database on this machine
        return UTC
