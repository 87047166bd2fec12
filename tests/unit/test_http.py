"""The HTTP edge: a body is read within limits, JSON is read strictly, and every refusal is a problem document."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict
from starlette.requests import Request
from starlette.types import Message

from shared.http import parse, problem_response, read_body, trace_of
from shared.problems import FieldProblem, Problem


class Anything(BaseModel):
    model_config = ConfigDict(extra="forbid")

    value: Any = None


def a_request(headers: dict[str, str] | None = None, *, chunks: Iterable[bytes] = (b"",)) -> Request:
    parts = list(chunks)

    async def messages() -> AsyncIterator[Message]:
        for number, chunk in enumerate(parts, start=1):
            yield {"type": "http.request", "body": chunk, "more_body": number < len(parts)}

    stream = messages()
    given = {"content-type": "application/json"} if headers is None else headers
    return Request(
        {
            "type": "http",
            "method": "POST",
            "path": "/tasks",
            "query_string": b"",
            "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in given.items()],
        },
        lambda: anext(stream),
    )


def read(body: bytes | str, *, headers: dict[str, str] | None = None) -> Any:
    content = body.encode() if isinstance(body, str) else body
    return parse(Anything, a_request(headers), content).value


def refusal(body: bytes | str, *, headers: dict[str, str] | None = None) -> Problem:
    with pytest.raises(Problem) as refused:
        read(body, headers=headers)
    return refused.value


def nested(levels: int) -> str:
    """A body of so many levels, the object itself and the innermost value among them."""
    inner = levels - 2
    return '{"value":' + "[" * inner + "1" + "]" * inner + "}"


async def test_a_body_of_exactly_the_limit_is_read_whole() -> None:
    assert await read_body(a_request(chunks=[b"abc", b"", b"de"]), most=5) == b"abcde"


async def test_a_body_that_grows_beyond_the_limit_is_refused() -> None:
    with pytest.raises(Problem) as refused:
        await read_body(a_request(chunks=[b"abc", b"def"]), most=5)
    assert (refused.value.code, refused.value.status) == ("BODY_TOO_LARGE", 413)
    assert "5" in str(refused.value.detail)


async def test_a_body_beyond_the_limit_is_not_read_to_its_end() -> None:
    request = a_request(chunks=[b"abc", b"def", b"ghi"])
    with pytest.raises(Problem):
        await read_body(request, most=5)
    assert (await request.receive())["body"] == b"ghi"


async def test_a_body_that_declares_too_much_is_refused_unread() -> None:
    request = a_request({"content-length": "6"}, chunks=[b"a"])
    with pytest.raises(Problem, match="BODY_TOO_LARGE"):
        await read_body(request, most=5)
    assert (await request.receive())["body"] == b"a"


@pytest.mark.parametrize("declared", ["1", "0", "-1", "many", "", "²", "0000000000000000009"])
async def test_a_body_that_declares_too_little_is_still_measured(declared: str) -> None:
    with pytest.raises(Problem, match="BODY_TOO_LARGE"):
        await read_body(a_request({"content-length": declared}, chunks=[b"abcdef"]), most=5)


async def test_a_declared_length_of_any_size_does_no_harm() -> None:
    with pytest.raises(Problem, match="BODY_TOO_LARGE"):
        await read_body(a_request({"content-length": "9" * 5000}), most=5)


@pytest.mark.parametrize(
    "media_type",
    [
        "application/json",
        "Application/JSON",
        "application/json; charset=utf-8",
        "application/merge-patch+json",
    ],
)
def test_every_spelling_of_json_is_read(media_type: str) -> None:
    assert read('{"value": 1}', headers={"content-type": media_type}) == 1


@pytest.mark.parametrize("media_type", ["", "text/plain", "application/x-www-form-urlencoded", "json"])
def test_another_media_type_is_refused(media_type: str) -> None:
    headers = {"content-type": media_type} if media_type else {}
    problem = refusal('{"value": 1}', headers=headers)
    assert (problem.code, problem.status) == ("UNSUPPORTED_MEDIA_TYPE", 415)


NOT_JSON = {
    "nothing": b"",
    "half an object": b'{"value":',
    "single quotes": b"{'value': 1}",
    "a comma too many": b'{"value": 1,}',
    "two documents": b"{} {}",
    "a comment": b"{} // done",
    "not UTF-8": b'{"value": "\xff"}',
    "a bare line feed in a text": b'{"value": "a\nb"}',
    "NaN": b'{"value": NaN}',
    "Infinity": b'{"value": Infinity}',
    "-Infinity": b'{"value": [-Infinity]}',
    "a field twice": b'{"value": 1, "value": 2}',
    "an inner field twice": b'{"value": {"a": 1, "a": 1}}',
    "a field twice, once in disguise": b'{"value": 1, "valu\\u0065": 2}',
    "a number longer than Python reads": b'{"value": ' + b"9" * 5000 + b"}",
    "brackets without end": b"[" * 100_000,
    "objects without end": b'{"a":' * 100_000,
}


@pytest.mark.parametrize("body", NOT_JSON.values(), ids=NOT_JSON)
def test_what_is_not_json_is_refused(body: bytes) -> None:
    problem = refusal(body)
    assert (problem.code, problem.status) == ("MALFORMED_JSON", 400)


@pytest.mark.parametrize(
    ("body", "said"), [(NOT_JSON["NaN"], "NaN"), (NOT_JSON["a field twice"], "given twice")]
)
def test_json_that_only_python_would_read_is_refused_with_the_reason(body: bytes, said: str) -> None:
    assert said in str(refusal(body).detail)


def test_twelve_levels_are_read_and_thirteen_are_not() -> None:
    assert read(nested(12)) is not None
    problem = refusal(nested(13))
    assert (problem.code, problem.status) == ("MALFORMED_JSON", 400)
    assert "12" in str(problem.detail)


def test_depth_is_counted_through_objects_too() -> None:
    assert read('{"value":' * 1 + '{"a":' * 10 + "1" + "}" * 11) is not None
    assert refusal('{"value":' + '{"a":' * 11 + "1" + "}" * 12).code == "MALFORMED_JSON"


def test_a_wide_body_is_not_a_deep_one() -> None:
    assert len(read(json.dumps({"value": [[]] * 5000}))) == 5000


@pytest.mark.parametrize("body", ["[]", "null", "1", '"value"', "true"])
def test_json_that_is_not_an_object_is_refused(body: str) -> None:
    problem = refusal(body)
    assert (problem.code, problem.status) == ("INVALID_REQUEST", 422)
    assert "JSON" in str(problem.detail)


def test_a_byte_order_mark_is_forgiven() -> None:
    assert read(b"\xef\xbb\xbf" + b'{"value": 1}') == 1


TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def test_the_trace_of_a_request_is_carried_on() -> None:
    assert trace_of(a_request({"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"})) == TRACE


@pytest.mark.parametrize(
    "header",
    [
        "",
        TRACE,
        f"00-{TRACE}-00f067aa0ba902b7",  # without flags
        f"00-{TRACE.upper()}-00f067aa0ba902b7-01",
        f"00-{TRACE[:-1]}-00f067aa0ba902b7-01",
        f"00-{'0' * 32}-00f067aa0ba902b7-01",  # all zeros means none
        f"00-{TRACE}-00f067aa0ba902b7-01\n",
    ],
)
def test_a_trace_that_is_not_one_is_ignored(header: str) -> None:
    assert trace_of(a_request({"traceparent": header} if header else {})) is None


def test_a_problem_is_answered_as_a_problem_document() -> None:
    problem = Problem(
        "INVALID_REQUEST", "说明 / why", fields=[FieldProblem(pointer="/mode", message="错 / wrong")]
    )
    response = problem_response(problem)
    assert response.status_code == 422
    assert response.headers["content-type"].startswith("application/problem+json")
    assert response.headers["cache-control"] == "no-store"
    assert json.loads(bytes(response.body)) == {
        "type": "urn:lookbook:problem:invalid_request",
        "title": "请求内容有误 / The request is not valid",
        "status": 422,
        "code": "INVALID_REQUEST",
        "retryable": False,
        "detail": "说明 / why",
        "errors": [{"pointer": "/mode", "message": "错 / wrong"}],
    }


def test_who_is_not_logged_in_is_told_how() -> None:
    assert problem_response(Problem("UNAUTHENTICATED")).headers["www-authenticate"] == "Bearer"
    assert "www-authenticate" not in problem_response(Problem("FORBIDDEN")).headers


def test_when_to_come_back_is_said_only_when_it_is_known() -> None:
    busy = problem_response(Problem("UPSTREAM_UNAVAILABLE", retry_after=2))
    assert busy.headers["retry-after"] == "2"
    assert "retry-after" not in problem_response(Problem("INTERNAL")).headers
