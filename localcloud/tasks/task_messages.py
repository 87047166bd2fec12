"""What tasks look like on the wire: protobuf in, protobuf out.

It works on the raw protobuf classes: proto-plus costs ten times as much per message.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from google.cloud.tasks_v2 import types
from google.rpc import code_pb2

from localcloud.tasks.call import HttpCall
from localcloud.tasks.errors import InvalidArgument, Unimplemented
from localcloud.tasks.queue_messages import fill_retry
from localcloud.tasks.target_messages import call_from_pb, fill_call
from localcloud.tasks.task import DEFAULT_DEADLINE, Attempt, Outcome, Task
from localcloud.tasks.times import to_timedelta

TaskPb: Final[Any] = types.Task.pb()

VIEW_BASIC = 1
VIEW_FULL = 2

_LARGEST_TASK = 1024 * 1024 - 7
"""Where the real service draws the line, in bytes of the task as it is stored (in all but its view)."""
_SURELY_SMALL = 1_000_000

# google.rpc.Code
_CODE_BY_STATUS = {400: 3, 401: 16, 403: 7, 404: 5, 409: 10, 429: 8, 499: 1, 501: 12, 503: 14, 504: 4}
_UNKNOWN, _DEADLINE_EXCEEDED, _FAILED_PRECONDITION, _INTERNAL, _UNAVAILABLE = 2, 4, 9, 13, 14


def task_call(task: Any) -> HttpCall:
    if task.HasField("app_engine_http_request"):
        raise Unimplemented(
            "Task.app_engine_http_request (App Engine targets) is not implemented by localcloud."
        )
    if not task.HasField("http_request"):
        raise InvalidArgument("Task.httpRequest is required.")
    return call_from_pb(task.http_request)


def deadline_from_pb(task: Any) -> timedelta:
    if not task.HasField("dispatch_deadline"):
        return DEFAULT_DEADLINE
    deadline = to_timedelta(task.dispatch_deadline, "Task.dispatchDeadline")
    if not timedelta(seconds=15) <= deadline <= timedelta(minutes=30):
        raise InvalidArgument("Task.dispatchDeadline must be between [15s, 30m].")
    return timedelta(milliseconds=deadline // timedelta(milliseconds=1))


def check_size(task: Task) -> None:
    call = task.call
    headers = sum(len(name) + len(value) for name, value in call.headers.items())
    if len(call.body) + 4 * (len(call.url) + headers) < _SURELY_SMALL:
        return
    stored = task_to_pb(task, VIEW_FULL)
    stored.ClearField("view")
    if stored.ByteSize() > _LARGEST_TASK:
        raise InvalidArgument("Task size too large")


def task_to_pb(task: Task, view: int) -> Any:
    progress = task.progress
    pb = TaskPb(
        name=task.name,
        dispatch_count=progress.dispatch_count,
        response_count=progress.response_count,
        view=VIEW_FULL if view == VIEW_FULL else VIEW_BASIC,
    )
    pb.schedule_time.FromDatetime(progress.schedule_time)
    pb.create_time.FromDatetime(task.create_time.replace(microsecond=0))
    pb.dispatch_deadline.FromTimedelta(task.dispatch_deadline)
    if task.retry_config:
        fill_retry(pb.retry_config, task.retry_config)
    if progress.first_dispatch:
        pb.first_attempt.dispatch_time.FromDatetime(progress.first_dispatch)
    if progress.last_attempt:
        _fill_attempt(pb.last_attempt, progress.last_attempt)
    fill_call(pb.http_request, task.call, with_body=view == VIEW_FULL)
    return pb


def _fill_attempt(pb: Any, attempt: Attempt) -> None:
    pb.schedule_time.FromDatetime(attempt.schedule_time)
    pb.dispatch_time.FromDatetime(attempt.dispatch_time)
    if attempt.response_time and attempt.outcome:
        pb.response_time.FromDatetime(attempt.response_time)
        code = _rpc_code(attempt.outcome)
        pb.response_status.code = code
        pb.response_status.message = f"{code_pb2.Code.Name(code)}({code}): {attempt.outcome.reason}"


def _rpc_code(outcome: Outcome) -> int:
    status = outcome.status
    if status is None:
        return _DEADLINE_EXCEEDED if outcome.timed_out else _UNAVAILABLE
    if status in _CODE_BY_STATUS:
        return _CODE_BY_STATUS[status]
    if 400 <= status < 500:
        return _FAILED_PRECONDITION
    return _INTERNAL if status >= 500 else _UNKNOWN
