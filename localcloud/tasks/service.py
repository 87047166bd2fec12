"""The methods that are served, whatever the wire: their messages, their books, and how they misbehave on request."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from google.cloud.tasks_v2 import types
from google.longrunning import operations_pb2  # type: ignore[import-untyped]
from google.protobuf import empty_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2

from localcloud.faults import Fault, Faults
from localcloud.tasks.batches import Batches
from localcloud.tasks.counts import Counts
from localcloud.tasks.engine import Engine
from localcloud.tasks.errors import TasksError
from localcloud.tasks.methods import ListQueuesResponse, ListTasksResponse, Methods
from localcloud.tasks.queue_messages import QueuePb
from localcloud.tasks.task_messages import TaskPb
from shared.clock import Clock

log = logging.getLogger(__name__)

CLOUD_TASKS = "google.cloud.tasks.v2.CloudTasks"
OPERATIONS = "google.longrunning.Operations"


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    name: str
    request: Any
    """The class of its message."""
    response: Any
    run: Callable[[Any], Any]


class Injected(TasksError):
    """Somebody asked for this fault."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(f"injected fault: {fault.error}")
        self.status = fault.error if fault.error in code_pb2.Code.keys() else "UNKNOWN"  # noqa: SIM118


class Service:
    def __init__(self, engine: Engine, *, clock: Clock, faults: Faults, counts: Counts) -> None:
        self.engine = engine
        self._faults = faults
        self._counts = counts
        methods = Methods(engine)
        batches = Batches(methods.create_task, methods.delete_task, clock=clock)
        operation, empty = operations_pb2.Operation, empty_pb2.Empty
        self.methods: dict[str, dict[str, Method]] = {
            CLOUD_TASKS: _by_name(
                ("ListQueues", ListQueuesResponse, methods.list_queues),
                ("GetQueue", QueuePb, methods.get_queue),
                ("CreateQueue", QueuePb, methods.create_queue),
                ("UpdateQueue", QueuePb, methods.update_queue),
                ("DeleteQueue", empty, methods.delete_queue),
                ("PurgeQueue", QueuePb, methods.purge_queue),
                ("PauseQueue", QueuePb, methods.pause_queue),
                ("ResumeQueue", QueuePb, methods.resume_queue),
                ("ListTasks", ListTasksResponse, methods.list_tasks),
                ("GetTask", TaskPb, methods.get_task),
                ("CreateTask", TaskPb, methods.create_task),
                ("DeleteTask", empty, methods.delete_task),
                ("RunTask", TaskPb, methods.run_task),
                ("BatchCreateTasks", operation, batches.create_tasks),
                ("BatchDeleteTasks", operation, batches.delete_tasks),
            ),
            OPERATIONS: {
                "GetOperation": Method(
                    name="GetOperation",
                    request=operations_pb2.GetOperationRequest,
                    response=operation,
                    run=batches.get_operation,
                )
            },
        }

    async def call(self, method: Method, request: Any) -> Any:
        """The method's answer, or a TasksError, whatever goes wrong."""
        self._counts.called(method.name)
        if fault := await self._faults.before(method.name):
            raise Injected(fault)
        try:
            answer = method.run(request)
        except TasksError:
            raise
        except Exception as error:
            log.exception("%s failed", method.name)
            raise TasksError(f"{method.name} failed inside localcloud; its log says why.") from error
        if fault := await self._faults.after(method.name):
            raise Injected(fault)
        return answer


def status_of(error: TasksError) -> status_pb2.Status:
    """The whole of a refusal, with the details that the real service adds."""
    status = status_pb2.Status(code=code_pb2.Code.Value(error.status), message=str(error))
    if error.link:
        link = error_details_pb2.Help.Link(description=error.link.description, url=error.link.url)
        status.details.add().Pack(error_details_pb2.Help(links=[link]))
    return status


def _by_name(*rows: tuple[str, Any, Callable[[Any], Any]]) -> dict[str, Method]:
    return {
        name: Method(name=name, request=getattr(types, f"{name}Request").pb(), response=response, run=run)
        for name, response, run in rows
    }
