"""BatchCreateTasks and BatchDeleteTasks: many calls in one, each with its own fate, told as an operation.

The work is done by the time of the answer, so an operation is never seen running; the last ones are kept for
who asks again, with GetOperation or with the same request_id.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime
from typing import Any

from google.cloud.tasks_v2 import types
from google.longrunning import operations_pb2  # type: ignore[import-untyped]
from google.protobuf import empty_pb2
from google.rpc import code_pb2

from localcloud.tasks.engine import NO_ENTITY
from localcloud.tasks.errors import InvalidArgument, NotFound, TasksError
from localcloud.tasks.names import check_queue, location_of
from shared.clock import Clock

_MOST_CREATED = 100
_MOST_DELETED = 1000
_KEPT = 1000
_SUCCEEDED = 2

_CreateMetadata: Any = types.BatchCreateTasksMetadata.pb()
_CreateResponse: Any = types.BatchCreateTasksResponse.pb()
_DeleteMetadata: Any = types.BatchDeleteTasksMetadata.pb()
_DeleteTaskRequest: Any = types.DeleteTaskRequest.pb()


class Batches:
    def __init__(
        self, create_task: Callable[[Any], Any], delete_task: Callable[[Any], Any], *, clock: Clock
    ) -> None:
        self._create_task = create_task
        self._delete_task = delete_task
        self._clock = clock
        self._operations: OrderedDict[str, Any] = OrderedDict()

    def create_tasks(self, request: Any) -> Any:
        queue = check_queue(request.parent)
        if not 1 <= len(request.requests) <= _MOST_CREATED:
            raise InvalidArgument(f"BatchCreateTasksRequest.requests must be 1 to {_MOST_CREATED} requests.")
        if any(one.parent != queue for one in request.requests):
            raise InvalidArgument("BatchCreateTasksRequest.parent must be the parent of every request.")
        name = _name(queue, request.request_id)
        if known := self._operations.get(name):
            return known
        start = self._clock.now()
        created, failed = _each(request.requests, self._create_task)
        metadata = _CreateMetadata(state=_SUCCEEDED if not failed else 5)
        return self._done(name, start, metadata, failed, _CreateResponse(tasks=created) if created else None)

    def delete_tasks(self, request: Any) -> Any:
        queue = check_queue(request.parent)
        if not 1 <= len(request.names) <= _MOST_DELETED:
            raise InvalidArgument(f"BatchDeleteTasksRequest.names must be 1 to {_MOST_DELETED} names.")
        if any(not name.startswith(f"{queue}/tasks/") for name in request.names):
            raise InvalidArgument("BatchDeleteTasksRequest.parent must be the queue of every task.")
        name = _name(queue, request.request_id)
        if known := self._operations.get(name):
            return known
        start = self._clock.now()
        requests = [_DeleteTaskRequest(name=task) for task in request.names]
        deleted, failed = _each(requests, self._delete_task)
        metadata = _DeleteMetadata(state=_SUCCEEDED if not failed else 3)
        return self._done(name, start, metadata, failed, empty_pb2.Empty() if deleted else None)

    def get_operation(self, request: Any) -> Any:
        operation = self._operations.get(request.name)
        if operation is None:
            raise NotFound(NO_ENTITY)
        return operation

    def _done(
        self, name: str, start: datetime, metadata: Any, failed: dict[int, TasksError], response: Any
    ) -> Any:
        """`response`: none if nothing at all succeeded."""
        metadata.start_time.FromDatetime(start)
        metadata.end_time.FromDatetime(self._clock.now())
        for index, error in failed.items():
            status = metadata.failed_requests[index]
            status.code, status.message = code_pb2.Code.Value(error.status), str(error)
        operation = operations_pb2.Operation(name=name, done=True)
        operation.metadata.Pack(metadata)
        if response is None:
            operation.error.code = code_pb2.ABORTED
            operation.error.message = (
                f"None of the requests succeeded, refer to {metadata.DESCRIPTOR.name}.failed_requests "
                "for individual error details"
            )
        else:
            operation.response.Pack(response)
        self._operations[name] = operation
        if len(self._operations) > _KEPT:
            self._operations.popitem(last=False)
        return operation


def _name(queue: str, request_id: str) -> str:
    if len(request_id) > 100 or "/" in request_id:
        raise InvalidArgument("request_id must be at most 100 characters, with no slash.")
    return f"{location_of(queue)}/operations/{request_id or uuid.uuid4()}"


def _each(requests: Any, do: Callable[[Any], Any]) -> tuple[list[Any], dict[int, TasksError]]:
    done: list[Any] = []
    failed: dict[int, TasksError] = {}
    for index, request in enumerate(requests):
        try:
            done.append(do(request))
        except TasksError as error:
            failed[index] = error
    return done, failed
