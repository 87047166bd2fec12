"""What a task is: the request it makes, how its attempts went, and what the next one is told about them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from localcloud.tasks.call import HttpCall
from localcloud.tasks.names import short
from localcloud.tasks.queue import Queue, RetryConfig

DEFAULT_DEADLINE = timedelta(minutes=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How one delivery ended."""

    status: int | None
    """The HTTP status of the answer; none: no answer came."""
    reason: str
    """In words, for whoever looks at the task."""
    retry_after: timedelta | None = None
    timed_out: bool = False

    @property
    def is_success(self) -> bool:
        return self.status is not None and 200 <= self.status < 300

    @property
    def told_status(self) -> int:
        """What the next attempt is told: the real service makes up a 504 for a deadline that has passed."""
        if self.status is not None:
            return self.status
        return 504 if self.timed_out else 503

    @property
    def is_overload(self) -> bool:
        return self.status in (429, 503)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    schedule_time: datetime
    dispatch_time: datetime
    response_time: datetime | None = None
    outcome: Outcome | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What changes during a task's life, kept apart so that saving it doesn't rewrite the body."""

    schedule_time: datetime
    dispatch_count: int = 0
    response_count: int = 0
    execution_count: int = 0
    """Answers other than 5xx: what X-CloudTasks-TaskExecutionCount tells."""
    first_dispatch: datetime | None = None
    last_attempt: Attempt | None = None

    def dispatched(self, now: datetime) -> Progress:
        return replace(
            self,
            dispatch_count=self.dispatch_count + 1,
            first_dispatch=self.first_dispatch or now,
            last_attempt=Attempt(schedule_time=self.schedule_time, dispatch_time=now),
        )

    def answered(self, attempt: Attempt, outcome: Outcome, now: datetime) -> Progress:
        heard = outcome.status is not None
        executed = outcome.status is not None and outcome.status < 500
        return replace(
            self,
            response_count=self.response_count + heard,
            execution_count=self.execution_count + executed,
            last_attempt=replace(attempt, response_time=now, outcome=outcome),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    name: str
    number: int
    """Rises with every task of the process and gives the order of lists."""
    call: HttpCall
    create_time: datetime
    dispatch_deadline: timedelta = DEFAULT_DEADLINE
    retry_config: RetryConfig | None = None
    """The task's own, in place of its queue's."""
    progress: Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One request to a worker: what `deliver` is handed."""

    queue: str
    task: str
    call: HttpCall
    headers: dict[str, str]
    """The caller's headers and Cloud Tasks' own; the Authorization of a token is the deliverer's business."""

    @property
    def queue_id(self) -> str:
        return short(self.queue)


def delivery_of(task: Task, queue: Queue) -> Delivery:
    """The request of the task's next attempt, made from its progress before that attempt is counted."""
    call = queue.http_target.applied(task.call) if queue.http_target else task.call
    progress = task.progress
    eta = progress.schedule_time.astimezone(UTC).timestamp()
    headers = {
        **call.headers,
        "X-CloudTasks-QueueName": short(queue.name),
        "X-CloudTasks-TaskName": short(task.name),
        "X-CloudTasks-TaskRetryCount": str(progress.dispatch_count),
        "X-CloudTasks-TaskExecutionCount": str(progress.execution_count),
        "X-CloudTasks-TaskETA": f"{eta:.6f}",
    }
    previous = progress.last_attempt.outcome if progress.last_attempt else None
    if previous is not None:
        headers["X-CloudTasks-TaskPreviousResponse"] = str(previous.told_status)
        headers["X-CloudTasks-TaskRetryReason"] = ""  # the real service sends it empty to HTTP targets
    return Delivery(queue=queue.name, task=task.name, call=call, headers=headers)
