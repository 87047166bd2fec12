"""The engine's gRPC face: google.cloud.tasks.v2.CloudTasks, the rest UNIMPLEMENTED by name.

What is missing is listed in the README; a test reads it against Google's own list of methods.
"""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
import grpc.aio
from google.cloud.tasks_v2 import types
from google.longrunning import operations_pb2  # type: ignore[import-untyped]
from google.protobuf import empty_pb2
from google.rpc import error_details_pb2, status_pb2

from localcloud.faults import Fault, Faults
from localcloud.tasks import queue_messages, task_messages
from localcloud.tasks.batches import Batches
from localcloud.tasks.counts import Counts
from localcloud.tasks.engine import Engine
from localcloud.tasks.errors import InvalidArgument, TasksError
from localcloud.tasks.filter import queue_filter
from localcloud.tasks.names import check_location, check_queue, check_task, location_of
from localcloud.tasks.queue import Queue, QueueState
from localcloud.tasks.times import to_datetime
from shared.clock import Clock

if TYPE_CHECKING:  # generic in the stubs alone
    _GenericRpcHandler = grpc.GenericRpcHandler[Any, Any]
else:
    _GenericRpcHandler = grpc.GenericRpcHandler

log = logging.getLogger(__name__)

SERVICE = "google.cloud.tasks.v2.CloudTasks"
_MOST_QUEUES = 9800
_MOST_TASKS = 1000
_LARGEST_PAGE = 3_500_000
"""In bytes: gRPC clients take four megabytes unless they are told otherwise."""
_EMPTY = empty_pb2.Empty()

_ListQueuesResponse: Any = types.ListQueuesResponse.pb()
_ListTasksResponse: Any = types.ListTasksResponse.pb()


class Methods:
    """Each takes a request and returns an answer, or raises a TasksError. The names are the service's."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def list_queues(self, request: Any) -> Any:
        location = check_location(request.parent)
        limit = _page_size(request.page_size, _MOST_QUEUES)
        accepts = queue_filter(request.filter)
        queues = self._engine.queues_after(location, _read_token(request.page_token))
        answer = _ListQueuesResponse()
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
        answer = _ListTasksResponse()
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


def handlers(engine: Engine, *, clock: Clock, faults: Faults, counts: Counts) -> list[_GenericRpcHandler]:
    methods = Methods(engine)
    batches = Batches(methods.create_task, methods.delete_task, clock=clock)
    queue, task, operation = queue_messages.QueuePb, task_messages.TaskPb, operations_pb2.Operation
    tables: dict[str, dict[str, tuple[Any, Any, Callable[[Any], Any]]]] = {
        SERVICE: {
            "ListQueues": (types.ListQueuesRequest.pb(), _ListQueuesResponse, methods.list_queues),
            "GetQueue": (types.GetQueueRequest.pb(), queue, methods.get_queue),
            "CreateQueue": (types.CreateQueueRequest.pb(), queue, methods.create_queue),
            "UpdateQueue": (types.UpdateQueueRequest.pb(), queue, methods.update_queue),
            "DeleteQueue": (types.DeleteQueueRequest.pb(), empty_pb2.Empty, methods.delete_queue),
            "PurgeQueue": (types.PurgeQueueRequest.pb(), queue, methods.purge_queue),
            "PauseQueue": (types.PauseQueueRequest.pb(), queue, methods.pause_queue),
            "ResumeQueue": (types.ResumeQueueRequest.pb(), queue, methods.resume_queue),
            "ListTasks": (types.ListTasksRequest.pb(), _ListTasksResponse, methods.list_tasks),
            "GetTask": (types.GetTaskRequest.pb(), task, methods.get_task),
            "CreateTask": (types.CreateTaskRequest.pb(), task, methods.create_task),
            "DeleteTask": (types.DeleteTaskRequest.pb(), empty_pb2.Empty, methods.delete_task),
            "RunTask": (types.RunTaskRequest.pb(), task, methods.run_task),
            "BatchCreateTasks": (types.BatchCreateTasksRequest.pb(), operation, batches.create_tasks),
            "BatchDeleteTasks": (types.BatchDeleteTasksRequest.pb(), operation, batches.delete_tasks),
        },
        "google.longrunning.Operations": {
            "GetOperation": (operations_pb2.GetOperationRequest, operation, batches.get_operation),
        },
    }
    served: list[_GenericRpcHandler] = [
        grpc.method_handlers_generic_handler(
            service,
            {
                name: grpc.unary_unary_rpc_method_handler(
                    _served(name, method, faults=faults, counts=counts),
                    request_deserializer=request.FromString,
                    response_serializer=response.SerializeToString,
                )
                for name, (request, response, method) in table.items()
            },
        )
        for service, table in tables.items()
    ]
    return [*served, _Unimplemented()]


def _served(
    name: str, method: Callable[[Any], Any], *, faults: Faults, counts: Counts
) -> Callable[[Any, Any], Awaitable[Any]]:
    async def serve(request: Any, context: Any) -> Any:
        counts.called(name)
        fault = await faults.before(name)
        if fault:
            await _abort_with(fault, context)
        refusal: TasksError | None = None
        try:
            answer = method(request)
        except TasksError as error:
            refusal = error
        except Exception:
            log.exception("%s failed", name)
            refusal = TasksError(f"{name} failed inside localcloud; its log says why.")
        if refusal:
            await _refuse(refusal, context)
        fault = await faults.after(name)
        if fault:
            await _abort_with(fault, context)
        return answer

    return serve


async def _refuse(error: TasksError, context: Any) -> None:
    code = grpc.StatusCode[error.status]
    if not error.link:
        await context.abort(code, str(error))
        return
    status = status_pb2.Status(code=code.value[0], message=str(error))
    link = error_details_pb2.Help.Link(description=error.link.description, url=error.link.url)
    status.details.add().Pack(error_details_pb2.Help(links=[link]))
    await context.abort(code, str(error), (("grpc-status-details-bin", status.SerializeToString()),))


async def _abort_with(fault: Fault, context: Any) -> NoReturn:
    code = grpc.StatusCode.__members__.get(fault.error, grpc.StatusCode.UNKNOWN)
    await context.abort(code, f"injected fault: {fault.error}")
    raise AssertionError("abort always raises")


class _Unimplemented(_GenericRpcHandler):
    """Takes every call that nothing before it took."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        name = str(handler_call_details.method)

        async def refuse(request: bytes, context: Any) -> None:
            await context.abort(
                grpc.StatusCode.UNIMPLEMENTED, f"{name.lstrip('/')} is not implemented by localcloud."
            )

        return grpc.unary_unary_rpc_method_handler(refuse)


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
