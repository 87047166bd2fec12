"""What tasks look like on the wire, and which requests for one make sense: protobuf in, protobuf out.

It works on the raw protobuf classes: proto-plus costs ten times as much per message.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlsplit

from google.cloud.tasks_v2 import types

from localcloud.tasks.errors import InvalidArgument, Unimplemented
from localcloud.tasks.queue_messages import fill_retry
from localcloud.tasks.task import (
    DEFAULT_DEADLINE,
    Attempt,
    HttpCall,
    OAuthToken,
    OidcToken,
    Outcome,
    Task,
)
from localcloud.tasks.times import to_timedelta

TaskPb: Final[Any] = types.Task.pb()

VIEW_BASIC = 1
VIEW_FULL = 2

_METHODS = {0: "POST", 1: "POST", 2: "GET", 3: "HEAD", 4: "PUT", 5: "DELETE", 6: "PATCH", 7: "OPTIONS"}
_METHOD_NUMBERS = {name: number for number, name in _METHODS.items()}
_BODY_METHODS = {"POST", "PUT", "PATCH"}
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_REPLACED_HEADERS = re.compile(
    r"host|content-length|user-agent|connection|keep-alive|te|trailer|transfer-encoding|upgrade|expect|proxy-.*"
    r"|x-google-.*|x-appengine-.*|x-cloudtasks-.*",
    re.IGNORECASE,
)
_LONGEST_URL = 2083
_LARGEST_HEADERS = 80 * 1024
_LARGEST_TASK = 1024 * 1024
_CLOUD_SCOPE = "https://www.googleapis.com/auth/cloud-platform"

# google.rpc.Code
_CODE_BY_STATUS = {400: 3, 401: 16, 403: 7, 404: 5, 409: 10, 429: 8, 499: 1, 501: 12, 503: 14, 504: 4}
_UNKNOWN, _DEADLINE_EXCEEDED, _FAILED_PRECONDITION, _INTERNAL, _UNAVAILABLE = 2, 4, 9, 13, 14


def call_from_pb(task: Any) -> HttpCall:
    if task.HasField("app_engine_http_request"):
        raise Unimplemented(
            "Task.app_engine_http_request (App Engine targets) is not implemented by localcloud."
        )
    if not task.HasField("http_request"):
        raise InvalidArgument("Task.http_request is required.")
    if task.ByteSize() > _LARGEST_TASK:
        raise InvalidArgument(f"Task size too large: at most {_LARGEST_TASK} bytes.")
    pb = task.http_request
    method = _METHODS.get(pb.http_method)
    if method is None:
        raise InvalidArgument(f"HttpRequest.http_method {pb.http_method} is unknown.")
    if pb.body and method not in _BODY_METHODS:
        raise InvalidArgument("HttpRequest.body is allowed only with the methods POST, PUT and PATCH.")
    url = _checked_url(pb.url)
    return HttpCall(
        url=url,
        method=method,
        headers=_checked_headers(pb.headers),
        body=pb.body,
        token=_token(pb, url),
    )


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_usable = bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable or not url.lower().startswith(("http://", "https://")):
        raise InvalidArgument('HttpRequest.url must be a full URL that begins with "http://" or "https://".')
    if any(ord(character) <= 32 or ord(character) == 127 for character in url):
        raise InvalidArgument("HttpRequest.url must not contain spaces or control characters.")
    if len(url.encode()) > _LONGEST_URL:
        raise InvalidArgument(f"HttpRequest.url is too long: at most {_LONGEST_URL} characters.")
    return url


def _checked_headers(headers: Any) -> dict[str, str]:
    kept: dict[str, str] = {}
    size = 0
    for name, value in headers.items():
        if not _TOKEN.fullmatch(name):
            raise InvalidArgument(f"HttpRequest.headers: {name[:80]!r} is not a header name.")
        if any(character in value for character in "\r\n\0"):
            raise InvalidArgument(
                f"HttpRequest.headers: the value of {name} has a line break or a NUL in it."
            )
        size += len(name) + len(value.encode())
        if not _REPLACED_HEADERS.fullmatch(name):
            kept[name] = value
    if size >= _LARGEST_HEADERS:
        raise InvalidArgument("HttpRequest.headers must be smaller than 80 KB together.")
    return {**kept, "User-Agent": "Google-Cloud-Tasks"}


def _token(pb: Any, url: str) -> OidcToken | OAuthToken | None:
    kind = pb.WhichOneof("authorization_header")
    if kind is None:
        return None
    token = getattr(pb, kind)
    account = token.service_account_email
    if not re.fullmatch(r"[^@\s]+@[^@\s]+", account):
        raise InvalidArgument(f"HttpRequest.{kind}.service_account_email must be an e-mail address.")
    if kind == "oidc_token":
        return OidcToken(service_account=account, audience=token.audience or url)
    return OAuthToken(service_account=account, scope=token.scope or _CLOUD_SCOPE)


def deadline_from_pb(task: Any) -> timedelta:
    if not task.HasField("dispatch_deadline"):
        return DEFAULT_DEADLINE
    deadline = to_timedelta(task.dispatch_deadline, "Task.dispatch_deadline")
    if not timedelta(seconds=15) <= deadline <= timedelta(minutes=30):
        raise InvalidArgument("Task.dispatch_deadline must be between 15 seconds and 30 minutes.")
    return deadline


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
    _fill_call(pb.http_request, task.call, view)
    return pb


def _fill_call(pb: Any, call: HttpCall, view: int) -> None:
    pb.url = call.url
    pb.http_method = _METHOD_NUMBERS[call.method]
    for name, value in call.headers.items():
        if name.lower() != "authorization":  # no view shows a token, not even one that the caller brought
            pb.headers[name] = value
    if view == VIEW_FULL:
        pb.body = call.body
    if isinstance(call.token, OidcToken):
        pb.oidc_token.service_account_email = call.token.service_account
        pb.oidc_token.audience = call.token.audience
    elif isinstance(call.token, OAuthToken):
        pb.oauth_token.service_account_email = call.token.service_account
        pb.oauth_token.scope = call.token.scope


def _fill_attempt(pb: Any, attempt: Attempt) -> None:
    pb.schedule_time.FromDatetime(attempt.schedule_time)
    pb.dispatch_time.FromDatetime(attempt.dispatch_time)
    if attempt.response_time and attempt.outcome:
        pb.response_time.FromDatetime(attempt.response_time)
        pb.response_status.code = _rpc_code(attempt.outcome)
        pb.response_status.message = attempt.outcome.reason


def _rpc_code(outcome: Outcome) -> int:
    status = outcome.status
    if status is None:
        return _DEADLINE_EXCEEDED if outcome.timed_out else _UNAVAILABLE
    if status in _CODE_BY_STATUS:
        return _CODE_BY_STATUS[status]
    if 400 <= status < 500:
        return _FAILED_PRECONDITION
    return _INTERNAL if status >= 500 else _UNKNOWN
