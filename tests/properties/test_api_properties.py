"""Whatever bytes arrive, a request is read or refused with a problem; nothing else ever happens."""

from __future__ import annotations

import json
import re
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from starlette.requests import Request

from shared.api import MOST_SHOTS, MOST_SOURCES, SessionIn, TaskIn
from shared.http import parse, problem_response
from shared.problems import CODES, Problem

REQUEST = Request(
    {"type": "http", "method": "POST", "path": "/", "headers": [(b"content-type", b"application/json")]}
)
BILINGUAL = re.compile(r".*[\u4e00-\u9fff].* / .*[A-Za-z]{2}.*", re.DOTALL)
ANY_TEXT = st.text(st.characters(codec=None), max_size=30)  # lone surrogates and NULs among them
FLOATS = st.floats(allow_nan=True, allow_infinity=True)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | FLOATS | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=15,
)
ADDRESSES = st.one_of(
    st.sampled_from(["https://a.example/1.jpg", "https://a.example/2.jpg", "cloud://env/1.jpg"]),
    st.builds("{}://{}".format, st.sampled_from(["https", "http", "cloud", "file", "HTTPS", ""]), ANY_TEXT),
    ANY_TEXT,
)
PARAMS = st.fixed_dictionaries(
    {},
    optional={
        "scene": ANY_TEXT | JSON,
        "style": ANY_TEXT,
        "count": st.integers(-1, 600) | JSON,
        "background": ANY_TEXT,
        "color": ANY_TEXT,
        "aspectRatio": st.sampled_from(["1:1", "3:4", "5:7"]) | JSON,
    },
)
PAYLOADS = st.dictionaries(
    st.sampled_from(["temperature", "topK", "seed", "systemInstruction", "safetySettings", "tools"])
    | ANY_TEXT,
    JSON,
    max_size=3,
)
BODIES: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {"images": st.lists(ADDRESSES, max_size=9) | JSON},
    optional={
        "userId": ANY_TEXT | JSON,
        "mode": st.sampled_from(["normal", "photo_set"]) | JSON,
        "params": PARAMS | JSON,
        "prompt": ANY_TEXT | JSON,
        "model": ANY_TEXT,
        "apiPayload": PAYLOADS | JSON,
        "priority": st.integers(-1, 10) | JSON,
        "callbackUrl": ADDRESSES | JSON,
        "extra": JSON,
    },
)
"""Mostly requests, a little wrong here and there."""


def outcome(body: bytes) -> TaskIn | Problem:
    try:
        return parse(TaskIn, REQUEST, body)
    except Problem as problem:
        return problem


def check(result: TaskIn | Problem) -> None:
    if isinstance(result, Problem):
        check_problem(result)
    else:
        check_task(result)


def check_problem(problem: Problem) -> None:
    """It can be sent, and it says what is wrong in both languages and where."""
    document = json.loads(bytes(problem_response(problem).body))
    assert document["code"] in CODES
    assert document["status"] in (400, 422)
    assert BILINGUAL.fullmatch(document["title"])
    assert "detail" not in document or BILINGUAL.fullmatch(document["detail"])
    for fault in document.get("errors", []):
        assert fault["pointer"] == "" or fault["pointer"].startswith("/")
        assert BILINGUAL.fullmatch(fault["message"])


def check_task(task: TaskIn) -> None:
    """It keeps every limit, and it can be stored and compared."""
    assert 1 <= len(task.images) <= MOST_SOURCES
    assert len(set(task.images)) == len(task.images)
    assert 1 <= task.count <= MOST_SHOTS
    assert 0 <= task.priority <= 9
    assert len(task.prompt) <= 2000
    stored = json.dumps(task.model_dump(mode="json"), ensure_ascii=False, allow_nan=False)
    assert stored.encode()
    assert task.fingerprint() == task.fingerprint()


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    check(outcome(body))


@given(JSON)
@settings(deadline=None)
def test_any_json_value_is_read_or_refused(value: Any) -> None:
    check(outcome(json.dumps(value).encode()))


@given(BODIES)
@settings(deadline=None, max_examples=300)
@example({"images": ["https://a.example/1.jpg"], "\ud800": 1})
@example({"images": ["https://a.example/1.jpg"], "apiPayload": {"\ud800": 1}})
@example({"images": ["https://["]})
def test_anything_like_a_request_is_read_or_refused(value: Any) -> None:
    check(outcome(json.dumps(value).encode()))


@given(JSON, st.sampled_from(["utf-8", "utf-16", "utf-32"]))
@settings(deadline=None)
def test_how_the_text_is_encoded_changes_nothing(value: Any, encoding: str) -> None:
    text = json.dumps(value)
    one, other = outcome(text.encode("utf-8")), outcome(text.encode(encoding))
    assert type(one) is type(other)


@given(
    st.lists(st.integers(0, 10_000), min_size=1, max_size=8, unique=True),
    st.sampled_from(["normal", "photo_set"]),
    st.none() | st.integers(1, 500),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=50),
)
@settings(deadline=None)
def test_every_good_request_is_read_as_it_was_meant(
    photos: list[int], mode: str, count: int | None, prompt: str
) -> None:
    images = [f"https://photos.example/{number}.jpg" for number in photos]
    body = {"images": images, "mode": mode, "prompt": prompt, "params": {"count": count}}
    task = outcome(json.dumps(body).encode())
    assert isinstance(task, TaskIn)
    assert (task.images, task.mode, task.prompt) == (images, mode, prompt)
    assert task.count == (count or {"normal": 1, "photo_set": 9}[mode])


@given(BODIES)
@settings(deadline=None)
def test_the_order_of_fields_never_matters(value: dict[str, Any]) -> None:
    one = outcome(json.dumps(value).encode())
    other = outcome(json.dumps(dict(reversed(value.items()))).encode())
    assert type(one) is type(other)
    if isinstance(one, TaskIn) and isinstance(other, TaskIn):
        assert one.fingerprint() == other.fingerprint()


@given(JSON)
@settings(deadline=None)
def test_any_login_is_read_or_refused(value: Any) -> None:
    try:
        code = parse(SessionIn, REQUEST, json.dumps(value).encode()).code
    except Problem as problem:
        check_problem(problem)
    else:
        assert 1 <= len(code) <= 256
