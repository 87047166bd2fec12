"""The HTTP edge that all three functions share: reading a body within limits, and answering with problems."""

from __future__ import annotations

import json
import re
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse

from shared.problems import Problem, invalid

_DEEPEST: Final = 12
_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
M = TypeVar("M", bound=BaseModel)


def problem_response(problem: Problem) -> JSONResponse:
    headers = {"cache-control": "no-store"}
    if problem.retry_after is not None:
        headers["retry-after"] = str(problem.retry_after)
    if problem.status == 401:
        headers["www-authenticate"] = "Bearer"
    return JSONResponse(
        problem.to_json(), problem.status, headers, media_type="application/problem+json; charset=utf-8"
    )


async def read_body(request: Request, *, most: int) -> bytes:
    """The body, unless it is larger than `most`; a declared length is not believed."""
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared[:12]) > most:
        raise Problem("BODY_TOO_LARGE", f"最多 {most} 字节 / at most {most} bytes")
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > most:
            raise Problem("BODY_TOO_LARGE", f"最多 {most} 字节 / at most {most} bytes")
        chunks.append(chunk)
    return b"".join(chunks)


def parse(model: type[M], request: Request, body: bytes) -> M:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json" and not media_type.endswith("+json"):
        raise Problem("UNSUPPORTED_MEDIA_TYPE")
    try:
        value = json.loads(body, parse_constant=_refuse_constant, object_pairs_hook=_no_twins)
    except (ValueError, RecursionError) as error:
        detail = str(error) if isinstance(error, _BadJson) else None
        raise Problem("MALFORMED_JSON", detail) from None
    if _depth(value) > _DEEPEST:
        raise Problem("MALFORMED_JSON", f"嵌套过深 / nested deeper than {_DEEPEST} levels")
    if not isinstance(value, dict):
        raise Problem("INVALID_REQUEST", "应为 JSON 对象 / the body must be a JSON object")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise invalid(error.errors(include_url=False, include_input=False)) from None


class _BadJson(ValueError):
    """JSON that Python would read and nobody else would."""


def _refuse_constant(name: str) -> Any:
    raise _BadJson(f"{name} 不是 JSON / {name} is not JSON")


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise _BadJson("同一字段出现两次 / a field is given twice")
    return document


def _depth(value: Any) -> int:
    """Without recursion: what is measured may be built to break that."""
    deepest, level = 0, [value]
    while level and deepest <= _DEEPEST:
        deepest += 1
        level = [
            child
            for parent in level
            if isinstance(parent, dict | list)
            for child in (parent.values() if isinstance(parent, dict) else parent)
        ]
    return deepest


def trace_of(request: Request) -> str | None:
    """The trace id of a W3C traceparent header, if there is a good one."""
    match = _TRACEPARENT.fullmatch(request.headers.get("traceparent", ""))
    return match[1] if match and match[1] != "0" * 32 else None
