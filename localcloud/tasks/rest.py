"""The service over HTTP and JSON, as cloudtasks.googleapis.com has it: /v2/projects/…, and BufferTask.

A path and a verb choose the method; path, query and body together are its message, as gRPC transcoding says.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from google.cloud.tasks_v2 import types
from google.protobuf import json_format
from google.rpc import code_pb2
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from localcloud.tasks.errors import FailedPrecondition, InvalidArgument, TasksError, Unimplemented
from localcloud.tasks.names import check_queue
from localcloud.tasks.service import CLOUD_TASKS, OPERATIONS, Service, status_of

_LOCATION = r"projects/[^/]+/locations/[^/]+"
_QUEUE = rf"{_LOCATION}/queues/[^/:]+"
_TASK = rf"{_QUEUE}/tasks/[^/:]+"
_WHOLE = "*"
"""The body is the whole message, not one of its fields."""
_LARGEST_BODY = 16 * 1024 * 1024
_HTTP_STATUS = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "OUT_OF_RANGE": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "ABORTED": 409,
    "RESOURCE_EXHAUSTED": 429,
    "CANCELLED": 499,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}

_CreateTaskRequest: Any = types.CreateTaskRequest.pb()


@dataclass(frozen=True, slots=True)
class _Rule:
    verb: str
    path: re.Pattern[str]
    service: str
    method: str
    field: str
    """What the path names."""
    body: str | None = None


def _rule(verb: str, path: str, method: str, field: str, body: str | None = None) -> _Rule:
    service = OPERATIONS if method == "GetOperation" else CLOUD_TASKS
    return _Rule(verb, re.compile(path), service, method, field, body)


_RULES = [
    _rule("GET", rf"({_LOCATION})/queues", "ListQueues", "parent"),
    _rule("POST", rf"({_LOCATION})/queues", "CreateQueue", "parent", "queue"),
    _rule("GET", rf"({_QUEUE})", "GetQueue", "name"),
    _rule("PATCH", rf"({_QUEUE})", "UpdateQueue", "queue.name", "queue"),
    _rule("DELETE", rf"({_QUEUE})", "DeleteQueue", "name"),
    _rule("POST", rf"({_QUEUE}):purge", "PurgeQueue", "name", _WHOLE),
    _rule("POST", rf"({_QUEUE}):pause", "PauseQueue", "name", _WHOLE),
    _rule("POST", rf"({_QUEUE}):resume", "ResumeQueue", "name", _WHOLE),
    _rule("GET", rf"({_QUEUE})/tasks", "ListTasks", "parent"),
    _rule("POST", rf"({_QUEUE})/tasks", "CreateTask", "parent", _WHOLE),
    _rule("POST", rf"({_QUEUE})/tasks:batchCreate", "BatchCreateTasks", "parent", _WHOLE),
    _rule("POST", rf"({_QUEUE})/tasks:batchDelete", "BatchDeleteTasks", "parent", _WHOLE),
    _rule("GET", rf"({_TASK})", "GetTask", "name"),
    _rule("DELETE", rf"({_TASK})", "DeleteTask", "name"),
    _rule("POST", rf"({_TASK}):run", "RunTask", "name", _WHOLE),
    _rule("GET", rf"({_LOCATION}/operations/[^/]+)", "GetOperation", "name"),
]
_BUFFER = re.compile(rf"({_QUEUE})/tasks(?:/([^/:]+))?:buffer")


def rest_route(service: Service) -> Route:
    async def handle(request: Request) -> Response:
        try:
            return await _answer(service, request)
        except TasksError as error:
            return _refusal(error)

    return Route("/v2/{path:path}", handle, methods=["GET", "POST", "PATCH", "DELETE", "PUT"])


async def _answer(service: Service, request: Request) -> Response:
    path = request.path_params["path"]
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _LARGEST_BODY:
            raise InvalidArgument("Request payload size exceeds the limit.")
    if request.method == "POST" and (match := _BUFFER.fullmatch(path)):
        return await _buffer(service, match[1], match[2], body, request.headers.get("content-type"))
    for rule in _RULES:
        match = rule.path.fullmatch(path) if rule.verb == request.method else None
        if match:
            method = service.methods[rule.service][rule.method]
            message = _message(rule, method.request(), match[1], request, body)
            return _json(await service.call(method, message))
    raise Unimplemented(f"{request.method} /v2/{path[:500]} is not implemented by localcloud.")


def _message(rule: _Rule, message: Any, named: str, request: Request, body: bytes) -> Any:
    query = {name: value for name, value in request.query_params.items() if not name.startswith("$")}
    query.pop("alt", None)
    try:
        json_format.ParseDict(query, message)
        if rule.body is not None and body.strip():
            target = message if rule.body == _WHOLE else getattr(message, rule.body)
            json_format.Parse(body, target)
    except (json_format.ParseError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise InvalidArgument(f"Invalid JSON payload received. {str(error)[:500]}") from error
    *parents, field = rule.field.split(".")
    owner = message
    for parent in parents:
        owner = getattr(owner, parent)
    setattr(owner, field, named)
    return message


async def _buffer(
    service: Service, queue: str, task_id: str | None, body: bytes, content_type: str | None
) -> Response:
    """A task made of the request itself: where it goes is the queue's HTTP target."""
    target = service.engine.get_queue(check_queue(queue)).http_target
    if target is None or target.uri is None or target.uri.host is None:
        raise FailedPrecondition("The queue must have an HTTP target with a host to buffer tasks.")
    created = _CreateTaskRequest(parent=queue)
    if task_id:
        created.task.name = f"{queue}/tasks/{task_id}"
    created.task.http_request.url = f"{target.uri.scheme or 'https'}://{target.uri.host}/"
    created.task.http_request.headers["Content-Type"] = content_type or "application/json"
    created.task.http_request.body = body
    answer = await service.call(service.methods[CLOUD_TASKS]["CreateTask"], created)
    return JSONResponse({"task": json_format.MessageToDict(answer)})


def _json(message: Any) -> Response:
    return Response(json_format.MessageToJson(message, indent=None), media_type="application/json")


def _refusal(error: TasksError) -> Response:
    status = _HTTP_STATUS.get(error.status, 500)
    told = json.loads(json_format.MessageToJson(status_of(error)))
    problem = {"code": status, "message": str(error), "status": code_pb2.Code.Name(status_of(error).code)}
    if "details" in told:
        problem["details"] = told["details"]
    return JSONResponse({"error": problem}, status_code=status)
