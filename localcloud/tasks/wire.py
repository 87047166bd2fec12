"""The engine's gRPC face: google.cloud.tasks.v2.CloudTasks, the rest UNIMPLEMENTED by name."""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
import grpc.aio
from google.cloud.tasks_v2 import types

from localcloud.faults import Fault, Faults
from localcloud.tasks import queue_messages, task_messages
from localcloud.tasks.counts import Counts
from localcloud.tasks.engine import Engine
from localcloud.tasks.errors import InvalidArgument, TasksError
from localcloud.tasks.names import check_location, check_queue, check_task, location_of
from localcloud.tasks.queue import Queue, QueueState
from localcloud.tasks.times import to_datetime

if TYPE_CHECKING:  # generic in the stubs alone
    _GenericRpcHandler = grpc.GenericRpcHandler[Any, Any]
else:
    _GenericRpcHandler = grpc.GenericRpcHandler

log = logging.getLogger(__name__)

SERVICE = "google.cloud.tasks.v2.CloudTasks"
_MOST_QUEUES = 9800
_MOST_TASKS = 1000
_NOTHING = b""
"""google.protobuf.Empty, serialised."""

_ListQueuesResponse: Any = types.ListQueuesResponse.pb()
_ListTasksResponse: Any = types.ListTasksResponse.pb()


class Methods:
    """Each takes a request and returns an answer, or raises a TasksError. The names are the service's."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def list_queues(self, request: Any) -> Any:
        location = check_location(request.parent)
        limit = _page_size(request.page_size, _MOST_QUEUES)
        queues = self._engine.list_queues(
            location,
            after=_read_token(request.page_token),
            limit=limit + 1,
            accepts=queue_messages.queue_filter(request.filter),
        )
        answer = _ListQueuesResponse(queues=[queue_messages.queue_to_pb(queue) for queue in queues[:limit]])
        if len(queues) > limit:
            answer.next_page_token = _write_token(queues[limit - 1].name)
        return answer

    def get_queue(self, request: Any) -> Any:
        return queue_messages.queue_to_pb(self._engine.get_queue(check_queue(request.name)))

    def create_queue(self, request: Any) -> Any:
        location = check_location(request.parent)
        name = check_queue(request.queue.name)
        if location_of(name) != location:
            raise InvalidArgument("The queue's name must begin with the parent's.")
        queue = queue_messages.queue_from_pb(request.queue, like=Queue(name=name))
        return queue_messages.queue_to_pb(self._engine.create_queue(queue))

    def update_queue(self, request: Any) -> Any:
        name = check_queue(request.queue.name)
        change = queue_messages.masked_change(request.queue, list(request.update_mask.paths))
        return queue_messages.queue_to_pb(self._engine.update_queue(name, change))

    def delete_queue(self, request: Any) -> Any:
        self._engine.delete_queue(check_queue(request.name))
        return _NOTHING

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
        if not after.isdigit():
            raise InvalidArgument("The page token is invalid.")
        tasks = self._engine.list_tasks(queue, after=int(after), limit=limit + 1)
        view = request.response_view
        answer = _ListTasksResponse(tasks=[task_messages.task_to_pb(task, view) for task in tasks[:limit]])
        if len(tasks) > limit:
            answer.next_page_token = _write_token(str(tasks[limit - 1].number))
        return answer

    def get_task(self, request: Any) -> Any:
        task = self._engine.get_task(check_task(request.name), request.name)
        return task_messages.task_to_pb(task, request.response_view)

    def create_task(self, request: Any) -> Any:
        queue = check_queue(request.parent)
        pb = request.task
        if pb.name and check_task(pb.name) != queue:
            raise InvalidArgument("The task's name must begin with the name of its parent, the queue.")
        schedule_time = (
            to_datetime(pb.schedule_time, "Task.schedule_time") if pb.HasField("schedule_time") else None
        )
        task = self._engine.create_task(
            queue,
            name=pb.name or None,
            call=task_messages.call_from_pb(pb),
            schedule_time=schedule_time,
            dispatch_deadline=task_messages.deadline_from_pb(pb),
            retry_config=(
                (lambda base: queue_messages.retry_from_pb(pb.retry_config, base=base))
                if pb.HasField("retry_config")
                else None
            ),
        )
        return task_messages.task_to_pb(task, request.response_view)

    def delete_task(self, request: Any) -> Any:
        self._engine.delete_task(check_task(request.name), request.name)
        return _NOTHING

    def run_task(self, request: Any) -> Any:
        task = self._engine.run_task(check_task(request.name), request.name)
        return task_messages.task_to_pb(task, request.response_view)


def handlers(engine: Engine, *, faults: Faults, counts: Counts) -> list[_GenericRpcHandler]:
    methods = Methods(engine)
    table: dict[str, tuple[Any, Any, Callable[[Any], Any]]] = {
        "ListQueues": (types.ListQueuesRequest.pb(), _ListQueuesResponse, methods.list_queues),
        "GetQueue": (types.GetQueueRequest.pb(), queue_messages.QueuePb, methods.get_queue),
        "CreateQueue": (types.CreateQueueRequest.pb(), queue_messages.QueuePb, methods.create_queue),
        "UpdateQueue": (types.UpdateQueueRequest.pb(), queue_messages.QueuePb, methods.update_queue),
        "DeleteQueue": (types.DeleteQueueRequest.pb(), None, methods.delete_queue),
        "PurgeQueue": (types.PurgeQueueRequest.pb(), queue_messages.QueuePb, methods.purge_queue),
        "PauseQueue": (types.PauseQueueRequest.pb(), queue_messages.QueuePb, methods.pause_queue),
        "ResumeQueue": (types.ResumeQueueRequest.pb(), queue_messages.QueuePb, methods.resume_queue),
        "ListTasks": (types.ListTasksRequest.pb(), _ListTasksResponse, methods.list_tasks),
        "GetTask": (types.GetTaskRequest.pb(), task_messages.TaskPb, methods.get_task),
        "CreateTask": (types.CreateTaskRequest.pb(), task_messages.TaskPb, methods.create_task),
        "DeleteTask": (types.DeleteTaskRequest.pb(), None, methods.delete_task),
        "RunTask": (types.RunTaskRequest.pb(), task_messages.TaskPb, methods.run_task),
    }
    served = {
        name: grpc.unary_unary_rpc_method_handler(
            _served(name, method, faults=faults, counts=counts),
            request_deserializer=request.FromString,
            response_serializer=response.SerializeToString if response else bytes,
        )
        for name, (request, response, method) in table.items()
    }
    return [grpc.method_handlers_generic_handler(SERVICE, served), _Unimplemented()]


def _served(
    name: str, method: Callable[[Any], Any], *, faults: Faults, counts: Counts
) -> Callable[[Any, Any], Awaitable[Any]]:
    async def serve(request: Any, context: Any) -> Any:
        counts.called(name)
        fault = await faults.before(name)
        if fault:
            await _abort_with(fault, context)
        refusal: tuple[grpc.StatusCode, str] | None = None
        try:
            answer = method(request)
        except TasksError as error:
            refusal = grpc.StatusCode[error.status], str(error)
        except Exception:
            log.exception("%s failed", name)
            refusal = grpc.StatusCode.INTERNAL, f"{name} failed inside localcloud; its log says why."
        if refusal:
            await context.abort(*refusal)
        fault = await faults.after(name)
        if fault:
            await _abort_with(fault, context)
        return answer

    return serve


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
