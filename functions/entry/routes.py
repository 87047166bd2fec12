"""The routes of the entry function: parse, call one step, shape the answer."""

from __future__ import annotations

import base64
import binascii
import re
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlsplit

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from google.api_core.exceptions import GoogleAPICallError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from shared import api
from shared.adapters.firestore import Document
from shared.adapters.firestore_tasks import shots_of, task_path, tasks_of_user
from shared.adapters.wechat import LoginRefused
from shared.api import SessionIn, TaskIn
from shared.auth import Caller, SessionGate
from shared.bootstrap import EntryApp
from shared.errors import LookbookError
from shared.http import parse, problem_response, read_body, trace_of
from shared.ids import digest, new_trace_id
from shared.logs import Log, carry_trace
from shared.problems import FieldProblem, Problem
from shared.task import Shot, Task

_TASK_ID: Final = re.compile(r"task_[a-z0-9]{1,40}")
_IDEMPOTENCY_KEY: Final = re.compile(r"[\x21-\x7e]{1,255}")
_POLL_SECONDS: Final = 2
_HTTP_CODES: Final = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED"}

log = Log("entry")


def build_api(app: EntryApp) -> FastAPI:
    web = FastAPI(
        title="Lookbook",
        version="1",
        description="服装摄影任务接口 / Photographs of a garment, drawn to order.",
        docs_url="/docs",
        redoc_url=None,
    )

    async def problem(_: Request, error: Exception) -> Response:
        assert isinstance(error, Problem)  # noqa: S101 - registered for nothing else
        return problem_response(error)

    async def http_error(_: Request, error: Exception) -> Response:
        status = getattr(error, "status_code", 500)
        return problem_response(Problem(_HTTP_CODES.get(status, "INTERNAL")))

    async def unreadable(_: Request, error: Exception) -> Response:
        log.error("store.unavailable", reason=type(error).__name__)
        return problem_response(Problem("UPSTREAM_UNAVAILABLE", retry_after=2))

    async def not_found(_: Request, error: Exception) -> Response:
        return problem_response(Problem("NOT_FOUND"))

    async def crash(_: Request, error: Exception) -> Response:
        log.error("request.crashed", exc_info=error)
        return problem_response(Problem("INTERNAL"))

    web.add_exception_handler(Problem, problem)
    web.add_exception_handler(HTTPException, http_error)
    web.add_exception_handler(GoogleAPICallError, unreadable)
    # Path parameters of the wrong shape are all that FastAPI itself can refuse here.
    web.add_exception_handler(RequestValidationError, not_found)
    web.add_exception_handler(Exception, crash)

    async def identify(request: Request, body: bytes = b"") -> Caller:
        target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return app.gate.identify(method=request.method, target=target, headers=request.headers, body=body)

    async def find(task_id: str, caller: Caller) -> tuple[Task, Document]:
        if not _TASK_ID.fullmatch(task_id):
            raise Problem("NOT_FOUND")
        (document,) = await app.documents.get(task_path(task_id))
        if document is None or not caller.may_see(document.fields["userId"]):
            raise Problem("NOT_FOUND")
        return Task.from_document(document.fields), document

    async def submit(request: Request) -> Response:
        """One task per request; 202 as soon as it is safely written."""
        trace_id = trace_of(request) or new_trace_id(app.rng)
        carry_trace(trace_id)
        body = await read_body(request, most=app.settings.max_body_bytes)
        caller = await identify(request, body)
        task = parse(TaskIn, request, body)
        check_hosts(app, task)
        key = request.headers.get("idempotency-key")
        if key is not None and not _IDEMPOTENCY_KEY.fullmatch(key):
            raise Problem(
                "INVALID_REQUEST",
                "Idempotency-Key 应为 1 至 255 个可见字符 / Idempotency-Key has 1 to 255 visible characters",
            )
        accepted = await app.reception.submit(
            task,
            user_id=owner_of(caller, task),
            trace_id=trace_id,
            idempotency_key=key,
        )
        return JSONResponse(
            api.accepted(accepted.task_id, accepted.status, accepted.total),
            202,
            {"location": f"/tasks/{accepted.task_id}", "retry-after": str(_POLL_SECONDS)},
        )

    async def show(request: Request, task_id: str) -> Response:
        task, document = await find(task_id, await identify(request))
        shots = await shots_of(app.documents, task_id)
        etag = f'"{digest(document.version, *(shot.version for shot in shots))}"'
        headers = {"etag": etag, "cache-control": "private, no-cache"}
        if not task.status.is_final:
            headers["retry-after"] = str(_POLL_SECONDS)
        if etag in (tag.strip() for tag in request.headers.get("if-none-match", "").split(",")):
            return Response(status_code=304, headers=headers)
        return JSONResponse(
            api.show(task, [Shot.from_document(shot.fields) for shot in shots]), headers=headers
        )

    async def listing(request: Request) -> Response:
        caller = await identify(request)
        size = page_size(request.query_params.get("pageSize", "20"))
        after = read_page_token(request.query_params.get("pageToken"))
        documents = await tasks_of_user(app.documents, caller.user_id or "local", size=size + 1, after=after)
        tasks = [Task.from_document(document.fields) for document in documents]
        page: dict[str, Any] = {"tasks": [api.summary(task) for task in tasks[:size]]}
        if len(tasks) > size:
            page["nextPageToken"] = write_page_token(tasks[size - 1].created_at)
        return JSONResponse(page, headers={"cache-control": "private, no-cache"})

    async def cancel(request: Request, task_id: str) -> Response:
        """Unfinished shots stop, finished ones stay; 409 when the task has already ended."""
        task = await own(request, task_id)
        return changed(task, await app.changes.cancel(task_id))

    async def retry(request: Request, task_id: str) -> Response:
        """The failed shots are tried again."""
        task = await own(request, task_id)
        again = await app.changes.retry(task_id)
        return changed(task, "processing", retried=again)

    async def regenerate(request: Request, task_id: str, index: int) -> Response:
        """A finished shot is drawn anew."""
        task = await own(request, task_id)
        if not 0 <= index < task.total:
            raise Problem("NOT_FOUND")
        await app.changes.regenerate(task_id, index)
        return changed(task, "processing", index=index)

    async def own(request: Request, task_id: str) -> Task:
        body = await read_body(request, most=app.settings.max_body_bytes)
        task, _ = await find(task_id, await identify(request, body))
        carry_trace(task.trace_id)
        return task

    def changed(task: Task, status: str, **more: Any) -> Response:
        answer = api.accepted(task.task_id, status, task.total) | more
        return JSONResponse(
            answer, 202, {"location": f"/tasks/{task.task_id}", "retry-after": str(_POLL_SECONDS)}
        )

    async def events(request: Request, task_id: str) -> Response:
        """What happened so far, or, with `Accept: text/event-stream`, what happens from now on."""
        await find(task_id, await identify(request))
        after = request.query_params.get("after")
        if "text/event-stream" not in request.headers.get("accept", ""):
            page = await app.follower.page(task_id, after)
            return JSONResponse(page, headers={"cache-control": "private, no-cache"})
        return StreamingResponse(
            app.follower.stream(task_id, request.headers.get("last-event-id") or after),
            media_type="text/event-stream",
            headers={"cache-control": "no-store", "x-accel-buffering": "no"},
        )

    async def session(request: Request) -> Response:
        """A `wx.login` code for a token; only with AUTH_MODE=wechat."""
        if not isinstance(app.gate, SessionGate) or app.wechat is None:
            raise Problem("NOT_FOUND")
        code = parse(SessionIn, request, await read_body(request, most=4096)).code
        try:
            openid = await app.wechat.session(code)
        except LoginRefused as error:
            raise Problem("LOGIN_REFUSED", error.message) from None
        except LookbookError as error:
            raise Problem("UPSTREAM_UNAVAILABLE", error.message, retry_after=2) from None
        token, seconds = app.gate.issue(openid)
        return JSONResponse(
            {"token": token, "tokenType": "Bearer", "expiresIn": seconds},
            headers={"cache-control": "no-store"},
        )

    async def health() -> Response:
        return JSONResponse({"status": "ok"})

    async def ready() -> Response:
        """Whether Firestore answers: a request would be served."""
        await app.documents.get("health/probe")
        return JSONResponse({"status": "ready"})

    body_of = {"requestBody": {"required": True, "content": {"application/json": {"schema": TASK_SCHEMA}}}}
    accepted_answer: dict[int | str, dict[str, Any]] = {202: {"description": "Accepted"}}
    web.add_api_route(
        "/tasks",
        submit,
        methods=["POST"],
        status_code=202,
        openapi_extra=body_of,
        responses=accepted_answer,
    )
    web.add_api_route("/", submit, methods=["POST"], include_in_schema=False)
    web.add_api_route("/tasks", listing, methods=["GET"])
    web.add_api_route("/tasks/{task_id}", show, methods=["GET"])
    web.add_api_route("/tasks/{task_id}/events", events, methods=["GET"])
    web.add_api_route("/tasks/{task_id}:cancel", cancel, methods=["POST"], status_code=202)
    web.add_api_route("/tasks/{task_id}:retry", retry, methods=["POST"], status_code=202)
    web.add_api_route(
        "/tasks/{task_id}/shots/{index}:regenerate", regenerate, methods=["POST"], status_code=202
    )
    web.add_api_route("/session", session, methods=["POST"])
    web.add_api_route("/health", health, methods=["GET"])
    web.add_api_route("/ready", ready, methods=["GET"])
    return web


TASK_SCHEMA: Final = TaskIn.model_json_schema(by_alias=True)


def owner_of(caller: Caller, task: TaskIn) -> str:
    """The authenticated user; on a laptop without authentication, whoever the body names."""
    if caller.user_id is None:
        return task.user_id or "local"
    if task.user_id is not None and task.user_id != caller.user_id:
        raise Problem("FORBIDDEN", "userId 不是当前登录的用户 / userId is not the user who is logged in")
    return caller.user_id


def check_hosts(app: EntryApp, task: TaskIn) -> None:
    """Addresses that could never be fetched or called are refused at the door; the rest is checked when dialled."""
    fields: list[FieldProblem] = []
    for number, url in enumerate(task.images):
        if not url.startswith("cloud://") and not _is_acceptable(url, app, app.settings.source_hosts):
            fields.append(
                FieldProblem(
                    pointer=f"/images/{number}", message="不允许的图片地址 / this host is not allowed"
                )
            )
    if task.callback_url is not None:
        own = urlsplit(app.settings.callback_url).hostname
        allowed = app.settings.callback_hosts | ({own} if own else set())
        if not allowed or not _is_acceptable(task.callback_url, app, frozenset(allowed)):
            fields.append(
                FieldProblem(
                    pointer="/callbackUrl", message="不允许的回调地址 / this callback host is not allowed"
                )
            )
    if fields:
        raise Problem("INVALID_REQUEST", fields=fields)


def _is_acceptable(url: str, app: EntryApp, allowed: frozenset[str]) -> bool:
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    if f"{host}:{parts.port}" in app.settings.private_hosts:
        return True
    if parts.scheme != "https":
        return False
    wildcards = tuple(name[1:] for name in allowed if name.startswith("*."))
    return not allowed or host in allowed or (bool(wildcards) and host.endswith(wildcards))


def page_size(text: str) -> int:
    if not re.fullmatch(r"[1-9]\d?|100", text, re.ASCII):
        raise Problem("INVALID_REQUEST", "pageSize 应为 1 至 100 / pageSize is a number from 1 to 100")
    return int(text)


def write_page_token(moment: datetime) -> str:
    return base64.urlsafe_b64encode(moment.isoformat().encode()).decode().rstrip("=")


def read_page_token(token: str | None) -> datetime | None:
    if token is None:
        return None
    try:
        moment = datetime.fromisoformat(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    except (ValueError, binascii.Error):
        raise Problem("INVALID_REQUEST", "pageToken 无效 / this pageToken is not one of ours") from None
    if moment.tzinfo is None:
        raise Problem("INVALID_REQUEST", "pageToken 无效 / this pageToken is not one of ours")
    return moment
