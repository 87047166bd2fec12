"""The pose director against real HTTP answers: the seed's request, and one meaning for every failure."""

from __future__ import annotations

import socket
from datetime import timedelta
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from localcloud.http import drop, hang
from shared.adapters.openai import PoseDirector
from shared.errors import (
    ContentPolicyViolation,
    InsufficientQuota,
    InternalError,
    InvalidApiKey,
    InvalidPrompt,
    LookbookError,
    RateLimitExceeded,
    ServiceUnavailable,
    TimedOut,
    UnknownError,
)
from shared.prompts.director import director_messages
from tests.contracts.conftest import Serve

KEY = "sk-the-secret-of-this-test"
MESSAGES = director_messages(scene="商业摄影", style="现代简约", count=2)


async def directed(url: str, seconds: float = 5) -> str:
    director = PoseDirector(api_key=KEY, base_url=f"{url}/v1", timeout=timedelta(seconds=seconds))
    try:
        return await director.direct(MESSAGES, 2)
    finally:
        await director.close()


def completion(content: str | None, **message: Any) -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content}}
    choice["message"] |= message  # type: ignore[operator]
    return {"id": "c1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}


def failure(code: str) -> dict[str, Any]:
    return {"error": {"message": f"no, {KEY}", "type": "t", "code": code}}


async def test_request_is_the_seeds_and_the_raw_text_comes_back(serve: Serve) -> None:
    """A-136, A-137."""
    seen: list[tuple[str, dict[str, Any], str]] = []

    async def handler(request: Request) -> Response:
        seen.append((request.url.path, await request.json(), request.headers["authorization"]))
        return JSONResponse(completion('{"actions": ["a", "b"]}'))

    server = await serve(handler)
    assert await directed(server.url) == '{"actions": ["a", "b"]}'
    path, body, authorization = seen[0]
    assert (path, authorization) == ("/v1/chat/completions", f"Bearer {KEY}")
    assert (body["model"], body["temperature"]) == ("gpt-4o-mini", 0.8)
    assert body["response_format"] == {"type": "json_object"}
    assert body["messages"] == MESSAGES


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (429, failure("rate_limit_exceeded"), RateLimitExceeded),
        (429, failure("insufficient_quota"), InsufficientQuota),  # no waiting helps
        (401, failure("invalid_api_key"), InvalidApiKey),
        (403, failure("unsupported_country"), InvalidApiKey),
        (400, failure("bad"), InvalidPrompt),
        (400, failure("content_policy_violation"), ContentPolicyViolation),
        (404, failure("model_not_found"), InvalidPrompt),
        (408, {}, TimedOut),
        (500, failure("server_error"), InternalError),
        (502, b"<html>", ServiceUnavailable),
        (503, failure("overloaded"), ServiceUnavailable),
        (504, b"", TimedOut),
        (418, {}, UnknownError),
        (200, completion(None), UnknownError),
        (200, completion("  "), UnknownError),
        (200, completion(None, refusal="I will not."), ContentPolicyViolation),
        (200, {"choices": []}, UnknownError),
        (200, {"choices": "many"}, UnknownError),
        (200, {}, UnknownError),
        (200, [], UnknownError),
        (200, b"<html>hello</html>", UnknownError),
    ],
)
async def test_every_other_answer_has_one_meaning(
    serve: Serve, status: int, body: Any, kind: type[LookbookError]
) -> None:
    calls: list[int] = []

    async def handler(_: Request) -> Response:
        calls.append(1)
        if isinstance(body, bytes):
            return Response(body, status_code=status, media_type="text/html")
        return JSONResponse(body, status_code=status)

    server = await serve(handler)
    with pytest.raises(LookbookError) as caught:
        await directed(server.url)
    assert type(caught.value) is kind
    assert KEY not in str(caught.value)
    assert len(calls) == 1


async def test_wait_that_was_asked_for_is_kept(serve: Serve) -> None:
    async def handler(_: Request) -> Response:
        return JSONResponse(failure("rate_limit_exceeded"), 429, headers={"retry-after": "9"})

    server = await serve(handler)
    with pytest.raises(RateLimitExceeded) as caught:
        await directed(server.url)
    assert caught.value.retry_after == timedelta(seconds=9)


async def test_silent_director_times_out(serve: Serve) -> None:
    async def handler(request: Request) -> Response:
        await request.body()
        return await hang(request)

    server = await serve(handler)
    with pytest.raises(TimedOut):
        await directed(server.url, seconds=0.2)


async def test_director_that_hangs_up_or_is_not_there_is_unavailable(serve: Serve) -> None:
    async def handler(request: Request) -> Response:
        await request.body()
        return await drop(request)

    server = await serve(handler)
    with pytest.raises(ServiceUnavailable):
        await directed(server.url)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(ServiceUnavailable):
            await directed(f"http://127.0.0.1:{taken.getsockname()[1]}")
