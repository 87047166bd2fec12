"""What each method of google.cloud.tasks.v2 does with its message: check it, ask the engine, shape the answer."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from google.cloud.tasks_v2 import types
from google.protobuf import empty_pb2

from localcloud.tasks import queue_messages, task_messages
from localcloud.tasks.engine import Engine
from localcloud.tasks.errors import InvalidArgument
from localcloud.tasks.filter import queue_filter
from localcloud.tasks.names import check_location, check_queue, check_task, location_of
from localcloud.tasks.queue import Queue, QueueState
from localcloud.tasks.times import to_datetime

_MOST_QUEUES = 9800
_MOST_TASKS = 1000
_LARGEST_PAGE = 3_500_000
"""In bytes: gRPC clients take four megabytes unless they are told otherwise."""
_EMPTY = empty_pb2.Empty()

ListQueuesResponse: Any = types.ListQueuesResponse.pb()
ListTasksResponse: Any = types.ListTasksResponse.pb()


class Methods:
    """Each takes a request and returns an answer, or raises a TasksError. The names are the service's."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def list_queues(self, request: Any) -> Any:
        location = check_location(request.parent)
        limit = _page_size(request.page_size, _MOST_QUEUES)
        accepts = queue_filter(request.filter)
        queues = self._engine.queues_after(location, _read_token(request.page_token))
        answer = ListQueuesResponse()
        for pb in filter(accepts, map(queue_messages.queue_to_pb, queues)):
            if len(answer.queues) == limit:
                answer.next_page_token = _write_token(answer.queues[-1].name)
                break
            answer.queues.append(pb)
        return answer

    def get_queue(self, request: Any) -> Any:
        return queue_messages.queue_to_pb(self._engine.get_queue(check_queue(request.name)))

    def create_queue(self, request: Any) -> Any:
        location = check_location(request.parent)
        name = check_queue(request.queue.name)
        if location_of(name) != location:
            raise InvalidArgument(f"{name} must begin with {location}.")
        queue = queue_messages.queue_from_pb(request.queue, like=Queue(name=name))
        return queue_messages.queue_to_pb(self._engine.create_queue(queue))

    def update_queue(self, request: Any) -> Any:
        name = check_queue(request.queue.name)
        change = queue_messages.masked_change(request.queue, list(request.update_mask.paths))
        return queue_messages.queue_to_pb(self._engine.update_queue(name, change))

    def delete_queue(self, request: Any) -> Any:
        self._engine.delete_queue(check_queue(request.name))
        return _EMPTY

    def purge_queue(self, request: Any) -> Any:
        return queue_messages.queue_to_pb(self._engine.purge_queue(check_queue(request.name)))

    def pause_queue(self, request: Any) -> Any:
        queue = self._engine.set_state(check_queue(request.name), QueueState.PAUSED)
        return queue_messages.queue_to_pb(queue)

    def resume_queue(self, request: Any) -> Any:
        queue = self._engine.set_state(check_queue(request.name), QueueState.RUNNING)
        return queue_messages.queue_to_pb(queue)

    def list_tasks(self, request: Any) -> Any:
        queue = check_queue(request.parent)
        limit = _page_size(request.page_size, _MOST_TASKS)
        after = _read_token(request.page_token) or "0"
        if not (after.isascii() and after.isdigit() and len(after) < 20):
            raise InvalidArgument("The page token is invalid.")
        answer = ListTasksResponse()
        last, size = 0, 0
        for task in self._engine.tasks_after(queue, int(after)):
            pb = task_messages.task_to_pb(task, request.response_view)
            size += pb.ByteSize()
            if len(answer.tasks) == limit or (size > _LARGEST_PAGE and last):
                answer.next_page_token = _write_token(str(last))
                break
            answer.tasks.append(pb)
            last = task.number
        return answer

    def get_task(self, request: Any) -> Any:
        task = self._engine.get_task(check_task(request.name), request.name)
        return task_messages.task_to_pb(task, request.response_view)

    def create_task(self, request: Any) -> Any:
        queue = check_queue(request.parent)
        pb = request.task
        if pb.name and (named := check_task(pb.name)) != queue:
            raise InvalidArgument(
                f"The queue name from request ('{queue}') must be the same as the queue name in the "
                f"named task ('{named}')."
            )
        schedule_time = (
            to_datetime(pb.schedule_time, "Task.scheduleTime") if pb.HasField("schedule_time") else None
        )
        task = self._engine.create_task(
            queue,
            name=pb.name or None,
            call=task_messages.task_call(pb),
            schedule_time=schedule_time,
            dispatch_deadline=task_messages.deadline_from_pb(pb),
            retry_config=(
                (lambda base: queue_messages.retry_from_pb(pb.retry_config, base=base))
                if pb.HasField("retry_config")
                else None
            ),
            check=task_messages.check_size,
        )
        return task_messages.task_to_pb(task, request.response_view)

    def delete_task(self, request: Any) -> Any:
        self._engine.delete_task(check_task(request.name), request.name)
        return _EMPTY

    def run_task(self, request: Any) -> Any:
        task = self._engine.run_task(check_task(request.name), request.name)
        return task_messages.task_to_pb(task, request.response_view)


def _page_size(asked: int, most: int) -> int:
    if asked < 0:
        raise InvalidArgument("page_size must not be negative.")
    return min(asked or most, most)


def _write_token(value: str) -> str:
    return base64.urlsafe_b64encode(value.encode()).decode()


def _read_token(token: str) -> str:
    try:
        return base64.b64decode(token.encode(), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise InvalidArgument("The page token is invalid.") from error
