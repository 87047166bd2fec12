"""What Cloud Tasks does, with no wire: queues, tasks, lists, names that stay taken.

Resource names are checked by the caller.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice
from random import Random

from localcloud.tasks.dispatcher import Deliver, Dispatcher
from localcloud.tasks.errors import AlreadyExists, InvalidArgument, NotFound
from localcloud.tasks.names import location_of
from localcloud.tasks.queue import Queue, QueueState, RetryConfig
from localcloud.tasks.store import Store
from localcloud.tasks.task import DEFAULT_DEADLINE, HttpCall, Progress, Task
from shared.clock import Clock

NAME_TAKEN_FOR = timedelta(hours=24)
FURTHEST_SCHEDULE = timedelta(days=30)


class Engine:
    def __init__(self, *, clock: Clock, random: Random, deliver: Deliver, store: Store) -> None:
        self._clock = clock
        self._random = random
        self._deliver = deliver
        self._store = store
        self._dispatchers: dict[str, Dispatcher] = {}
        self._taken: dict[str, datetime] = {}
        self._taken_by_age: deque[tuple[datetime, str]] = deque()
        self._retired: list[Dispatcher] = []
        """Of deleted queues: their last attempts may still be under way."""
        self._number = 0

    def resume(self) -> None:
        """Take up what the store holds, and go on dispatching it."""
        self._store.forget_buried(self._clock.now())
        saved = self._store.load()
        for _, name, until in saved.tombstones:
            self._taken[name] = until
            self._taken_by_age.append((until, name))
        for queue in saved.queues:
            self._dispatchers[queue.name] = self._dispatcher(queue)
        for queue_name, task in saved.tasks:
            self._number = max(self._number, task.number)
            self._dispatchers[queue_name].add(task)

    async def stop(self) -> None:
        for dispatcher in [*self._dispatchers.values(), *self._retired]:
            await dispatcher.stop()

    # -- queues

    def create_queue(self, queue: Queue) -> Queue:
        if queue.name in self._dispatchers:
            raise AlreadyExists("Queue already exists")
        return self._put(queue)

    def update_queue(self, name: str, change: Callable[[Queue], Queue]) -> Queue:
        """Makes the queue if it isn't there, as the service does."""
        dispatcher = self._dispatchers.get(name)
        return self._put(change(dispatcher.queue if dispatcher else Queue(name=name)))

    def get_queue(self, name: str) -> Queue:
        return self._existing(name).queue

    def list_queues(
        self, location: str, *, after: str, limit: int, accepts: Callable[[Queue], bool]
    ) -> list[Queue]:
        names = sorted(name for name in self._dispatchers if location_of(name) == location and name > after)
        queues = (self._dispatchers[name].queue for name in names)
        return list(islice(filter(accepts, queues), limit))

    def delete_queue(self, name: str) -> None:
        dispatcher = self._existing(name)
        self._store.delete_queue(name)
        dispatcher.retire()
        dispatcher.clear()
        self._retired = [gone for gone in self._retired if gone.is_busy] + [dispatcher]
        del self._dispatchers[name]
        prefix = f"{name}/tasks/"
        self._taken = {taken: until for taken, until in self._taken.items() if not taken.startswith(prefix)}

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
    ) -> Task:
        """`retry_config` makes the task's own settings from its queue's."""
        dispatcher = self._existing(queue)
        now = self._clock.now()
        if schedule_time is not None and schedule_time - now > FURTHEST_SCHEDULE:
            raise InvalidArgument("Task.schedule_time must be at most 30 days in the future.")
        name = name or self._free_name(queue, dispatcher)
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
        self._store.add_task(queue, task)
        dispatcher.add(task)
        return task

    def get_task(self, queue: str, name: str) -> Task:
        return self._found(name, self._existing(queue).get(name))

    def list_tasks(self, queue: str, *, after: int, limit: int) -> list[Task]:
        tasks = self._existing(queue).tasks()
        return list(islice((task for task in tasks if task.number > after), limit))

    def delete_task(self, queue: str, name: str) -> None:
        if not self._existing(queue).remove(name):
            raise self._missing(name)
        self.ended(queue, [name])

    def run_task(self, queue: str, name: str) -> Task:
        return self._found(name, self._existing(queue).run_now(name))

    # -- the dispatchers' journal

    def progressed(self, task: Task) -> None:
        self._store.save_progress(task)

    def ended(self, queue: str, names: list[str]) -> None:
        now = self._clock.now()
        until = now + NAME_TAKEN_FOR
        self._store.bury(queue, names, until)
        for name in names:
            self._taken[name] = until
            self._taken_by_age.append((until, name))
        self._free_old_names(now)

    # -- inside

    def _dispatcher(self, queue: Queue) -> Dispatcher:
        return Dispatcher(queue, clock=self._clock, deliver=self._deliver, journal=self)

    def _put(self, queue: Queue) -> Queue:
        self._store.save_queue(queue)
        dispatcher = self._dispatchers.get(queue.name)
        if dispatcher:
            dispatcher.change(queue)
        else:
            self._dispatchers[queue.name] = self._dispatcher(queue)
        return queue

    def _existing(self, queue: str) -> Dispatcher:
        dispatcher = self._dispatchers.get(queue)
        if dispatcher is None:
            raise NotFound("Queue does not exist.")
        return dispatcher

    def _found(self, name: str, task: Task | None) -> Task:
        if task is None:
            raise self._missing(name)
        return task

    def _missing(self, name: str) -> NotFound:
        if self._taken.get(name, self._clock.now()) > self._clock.now():
            return NotFound(
                "The task no longer exists, though a task with this name existed recently. "
                "The task either successfully completed or was deleted."
            )
        return NotFound("Task does not exist.")

    def _refuse_taken(self, name: str, dispatcher: Dispatcher, now: datetime) -> None:
        if dispatcher.get(name):
            raise AlreadyExists("Requested entity already exists")
        if self._taken.get(name, now) > now:
            raise AlreadyExists(
                "The task cannot be created because a task with this name existed too recently."
            )

    def _free_name(self, queue: str, dispatcher: Dispatcher) -> str:
        while True:
            name = f"{queue}/tasks/{self._random.randrange(10**18, 10**19)}"
            if name not in self._taken and not dispatcher.get(name):
                return name

    def _free_old_names(self, now: datetime) -> None:
        if not self._taken_by_age or self._taken_by_age[0][0] > now:
            return
        while self._taken_by_age and self._taken_by_age[0][0] <= now:
            until, name = self._taken_by_age.popleft()
            if self._taken.get(name) == until:
                del self._taken[name]
        self._store.forget_buried(now)
