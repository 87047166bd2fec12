"""What a resource name of Cloud Tasks may look like; the engine trusts names that were checked here."""

from __future__ import annotations

import re

from localcloud.tasks.errors import InvalidArgument

_PROJECT = r"[A-Za-z0-9.:-]{1,100}"
_LOCATION = r"[A-Za-z0-9-]{1,100}"
_QUEUE = r"[A-Za-z0-9-]{1,100}"
_TASK = r"[A-Za-z0-9_-]{1,500}"
_PARENT = rf"projects/{_PROJECT}/locations/{_LOCATION}"

_LOCATION_NAME = re.compile(_PARENT)
_QUEUE_NAME = re.compile(rf"{_PARENT}/queues/{_QUEUE}")
_TASK_NAME = re.compile(rf"({_PARENT}/queues/{_QUEUE})/tasks/{_TASK}")


def check_location(name: str) -> str:
    if not _LOCATION_NAME.fullmatch(name):
        raise InvalidArgument(
            "Invalid resource field value in the request: the location must be named "
            '"projects/PROJECT_ID/locations/LOCATION_ID".'
        )
    return name


def check_queue(name: str) -> str:
    if not _QUEUE_NAME.fullmatch(name):
        raise InvalidArgument(
            "Queue ID must be 1 to 100 letters, numbers or hyphens, in a name like "
            '"projects/PROJECT_ID/locations/LOCATION_ID/queues/QUEUE_ID".'
        )
    return name


def check_task(name: str) -> str:
    """The name of the queue that the task belongs to."""
    match = _TASK_NAME.fullmatch(name)
    if not match:
        raise InvalidArgument(
            "Task ID must be 1 to 500 letters, numbers, hyphens or underscores, in a name like "
            '"projects/PROJECT_ID/locations/LOCATION_ID/queues/QUEUE_ID/tasks/TASK_ID".'
        )
    return match[1]


def location_of(queue: str) -> str:
    return queue.rsplit("/queues/", 1)[0]


def short(name: str) -> str:
    """The last part of a name: a queue's or a task's id."""
    return name.rsplit("/", 1)[1]
