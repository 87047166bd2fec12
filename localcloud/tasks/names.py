"""What a resource name of Cloud Tasks may look like; the engine trusts names that were checked here."""

from __future__ import annotations

import re

from localcloud.tasks.errors import HelpLink, InvalidArgument

_PROJECT = r"[A-Za-z0-9.:-]{1,100}"
_LOCATION = r"[A-Za-z0-9-]{1,100}"
_PARENT = rf"projects/{_PROJECT}/locations/{_LOCATION}"

_LOCATION_NAME = re.compile(_PARENT)
_QUEUE_NAME = re.compile(rf"{_PARENT}/queues/([^/]*)")
_TASK_NAME = re.compile(rf"({_PARENT}/queues/([^/]*))/tasks/([^/]*)")
_QUEUE_ID = re.compile(r"[A-Za-z0-9-]{1,100}")
_TASK_ID = re.compile(r"[A-Za-z0-9_-]{1,500}")

_REFERENCE = "https://cloud.google.com/tasks/docs/reference/rest/v2/projects.locations.queues"
_QUEUE_LINK = HelpLink(description="Definition of queue name", url=f"{_REFERENCE}#Queue.FIELDS.name")
_TASK_LINK = HelpLink(description="Definition of task ID", url=f"{_REFERENCE}.tasks#Task.FIELDS.name")
_LONGEST_QUOTE = 600


def check_location(name: str) -> str:
    if not _LOCATION_NAME.fullmatch(name):
        raise InvalidArgument("Invalid resource field value in the request.")
    return name


def check_queue(name: str) -> str:
    match = _QUEUE_NAME.fullmatch(name)
    if not match:
        raise InvalidArgument(
            'Queue name must be formatted: "projects/<PROJECT_ID>/locations/<LOCATION_ID>'
            '/queues/<QUEUE_ID>".',
            link=_QUEUE_LINK,
        )
    _check_queue_id(match[1])
    return name


def check_task(name: str) -> str:
    """The name of the queue that the task belongs to."""
    match = _TASK_NAME.fullmatch(name)
    if not match:
        raise InvalidArgument(
            'Task name must be formatted: "projects/<PROJECT_ID>/locations/<LOCATION_ID>/queues/<QUEUE_ID>'
            '/tasks/<TASK_ID>".',
            link=_TASK_LINK,
        )
    queue, queue_id, task_id = match.groups()
    _check_queue_id(queue_id)
    if not _TASK_ID.fullmatch(task_id):
        raise InvalidArgument(
            f'Task ID "{task_id[:_LONGEST_QUOTE]}" can contain only letters ([A-Za-z]), numbers ([0-9]), '
            "hyphens (-), or underscores (_). Task ID must between 1 and 500 characters.",
            link=_TASK_LINK,
        )
    return str(queue)


def _check_queue_id(queue_id: str) -> None:
    if not _QUEUE_ID.fullmatch(queue_id):
        raise InvalidArgument(
            f'Queue ID "{queue_id[:_LONGEST_QUOTE]}" can contain only letters ([A-Za-z]), numbers ([0-9]), '
            "or hyphens (-). Queue ID must between 1 and 100 characters.",
            link=_QUEUE_LINK,
        )


def location_of(queue: str) -> str:
    return queue.rsplit("/queues/", 1)[0]


def short(name: str) -> str:
    """The last part of a name: a queue's or a task's id."""
    return name.rsplit("/", 1)[1]
