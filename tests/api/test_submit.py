"""What the door lets in, and what it says to the rest."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.flows.embedded import System

IMAGE = "https://photos.example.com/garment.jpg"


async def nothing_happened(api: System) -> bool:
    firestore, tasks = await api.counts("firestore"), await api.counts("tasks")
    return not firestore["writes"] and not tasks["calls"].get("CreateTask")


def body(**changes: Any) -> dict[str, Any]:
    return {"mode": "normal", "images": [IMAGE], "params": {"count": 1}, **changes}


@pytest.mark.parametrize(
    ("sent", "pointer"),
    [
        (body(mode="portrait"), "/mode"),
        (body(images=[]), "/images"),
        (body(images=[f"{IMAGE}?{n}" for n in range(9)]), "/images"),
        (body(images=["ftp://photos.example.com/x.jpg"]), "/images/0"),
        (body(images=["http://photos.example.com/x.jpg"]), "/images/0"),
        (body(images=[IMAGE, "https://user:secret@example.com/x.jpg"]), "/images/1"),
        (body(params={"count": 0}), "/params/count"),
        (body(params={"count": 501}), "/params/count"),
        (body(params={"count": "9"}), "/params/count"),
        (body(params={"scene": "x" * 101}), "/params/scene"),
        (body(params={"aspectRatio": "5:7"}), "/params/aspectRatio"),
        (body(prompt="x" * 2001), "/prompt"),
        (body(surprise=1), "/surprise"),
        (body(priority=10), "/priority"),
        (body(callbackUrl="https://elsewhere.example.com/hook"), "/callbackUrl"),
        (body(callbackUrl="https://[x"), "/callbackUrl"),
        (body(apiPayload={"temperature": 9}), "/apiPayload"),
        (body(prompt="\ud800"), "/prompt"),
    ],
)
async def test_a_bad_field_is_named_in_both_languages_and_nothing_is_written(
    api: System, sent: dict[str, Any], pointer: str
) -> None:
    answer = await api.post(sent)
    assert answer.status_code == 422
    assert answer.headers["content-type"].startswith("application/problem+json")
    problem = answer.json()
    assert problem["code"] == "INVALID_REQUEST"
    assert problem["retryable"] is False
    assert [error["pointer"] for error in problem["errors"]] == [pointer]
    message = problem["errors"][0]["message"]
    assert any("\u4e00" <= character <= "\u9fff" for character in message)
    assert " / " in message
    assert await nothing_happened(api)


@pytest.mark.parametrize(
    ("content", "content_type", "status", "code"),
    [
        (b"{", "application/json", 400, "MALFORMED_JSON"),
        (b'{"a": NaN}', "application/json", 400, "MALFORMED_JSON"),
        (b'{"mode": "normal", "mode": "normal"}', "application/json", 400, "MALFORMED_JSON"),
        (b'{"a":' * 40 + b"1" + b"}" * 40, "application/json", 400, "MALFORMED_JSON"),
        (b"[" * 100_000, "application/json", 400, "MALFORMED_JSON"),
        (b"[]", "application/json", 422, "INVALID_REQUEST"),
        (b"{}", "text/plain", 415, "UNSUPPORTED_MEDIA_TYPE"),
        (b'{"prompt": "' + b"x" * 300_000 + b'"}', "application/json", 413, "BODY_TOO_LARGE"),
        (b"\xff\xfe", "application/json", 400, "MALFORMED_JSON"),
    ],
)
async def test_a_body_that_is_no_request_is_refused(
    api: System, content: bytes, content_type: str, status: int, code: str
) -> None:
    answer = await api.http.post(
        f"{api.entry}/tasks", content=content, headers={"content-type": content_type}
    )
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert await nothing_happened(api)


async def test_a_body_without_end_is_cut_off(api: System) -> None:
    async def endless() -> Any:
        for _ in range(100):
            yield b"x" * 10_000

    answer = await api.http.post(
        f"{api.entry}/tasks", content=endless(), headers={"content-type": "application/json"}
    )
    assert answer.status_code == 413


async def test_one_commit_and_one_wake_up_per_shot(api: System) -> None:
    answer = await api.post(api.wish(count=500))
    assert answer.status_code == 202
    accepted = answer.json()
    assert (accepted["status"], accepted["total"]) == ("pending", 500)
    assert answer.headers["location"] == f"/tasks/{accepted['taskId']}" == accepted["links"]["self"]
    assert int(answer.headers["retry-after"]) > 0
    assert (await api.counts("firestore"))["rpcs"] == {"Commit": 1}
    assert (await api.counts("tasks"))["calls"]["CreateTask"] == 501


async def test_the_bare_address_of_the_function_takes_tasks_too(api: System) -> None:
    answer = await api.http.post(api.entry, json=api.wish())
    assert answer.status_code == 202


async def test_the_same_key_and_body_is_the_same_task(api: System) -> None:
    headers = {"Idempotency-Key": "once"}
    first, second = [await api.post(api.wish(count=3), headers=headers) for _ in range(2)]
    assert first.status_code == second.status_code == 202
    assert first.json()["taskId"] == second.json()["taskId"]
    assert (await api.counts("tasks"))["calls"]["CreateTask"] == 4


async def test_many_at_once_with_one_key_are_one_task(api: System) -> None:
    headers = {"Idempotency-Key": "at-once"}
    answers = await asyncio.gather(*(api.post(api.wish(), headers=headers) for _ in range(20)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["taskId"] for answer in answers}) == 1


async def test_a_key_of_invisible_characters_is_refused(api: System) -> None:
    answer = await api.post(api.wish(), headers={"Idempotency-Key": "at once"})
    assert answer.status_code == 422


async def test_the_same_key_with_another_body_is_refused(api: System) -> None:
    headers = {"Idempotency-Key": "twice"}
    await api.post(api.wish(), headers=headers)
    answer = await api.post(api.wish(prompt="other"), headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (422, "IDEMPOTENCY_KEY_REUSED")


async def test_the_same_key_of_another_user_is_another_task(api: System) -> None:
    headers = {"Idempotency-Key": "shared"}
    tasks = {await api.submit(userId=user, headers=headers) for user in ("ann", "bob")}
    assert len(tasks) == 2


async def test_the_owner_sees_a_task_and_nobody_else_does(api: System) -> None:
    task_id = await api.submit(userId="owner")
    url = f"{api.entry}/tasks/{task_id}"
    seen = await api.http.get(url, headers={"X-User-Id": "owner"})
    assert seen.status_code == 200
    assert int(seen.headers["retry-after"]) > 0
    for path in (url, f"{url}/events"):
        hidden = await api.http.get(path, headers={"X-User-Id": "stranger"})
        assert (hidden.status_code, hidden.json()["code"]) == (404, "NOT_FOUND")
    for action in (f"{url}:cancel", f"{url}:retry", f"{url}/shots/0:regenerate"):
        hidden = await api.http.post(action, headers={"X-User-Id": "stranger"})
        assert (hidden.status_code, hidden.json()["code"]) == (404, "NOT_FOUND")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/tasks/nonsense", 404),
        ("GET", "/tasks/task_00000000000000000000", 404),
        ("GET", "/nowhere", 404),
        ("DELETE", "/tasks", 405),
        ("POST", "/tasks/task_00000000000000000000:cancel", 404),
        ("POST", "/tasks/task_00000000000000000000/shots/x:regenerate", 404),
        ("POST", "/session", 404),
        ("GET", "/tasks?pageSize=0", 422),
        ("GET", "/tasks?pageSize=0000019999", 422),
        ("GET", "/tasks?pageToken=%00", 422),
        ("GET", "/tasks/../secrets", 404),
    ],
)
async def test_what_is_not_there_is_a_problem_too(api: System, method: str, path: str, status: int) -> None:
    answer = await api.http.request(method, f"{api.entry}{path}")
    assert answer.status_code == status
    assert answer.headers["content-type"].startswith("application/problem+json")
    assert answer.json()["status"] == status


async def test_the_interface_describes_itself(api: System) -> None:
    assert (await api.http.get(f"{api.entry}/health")).json() == {"status": "ok"}
    assert (await api.http.get(f"{api.entry}/ready")).json() == {"status": "ready"}
    paths = (await api.http.get(f"{api.entry}/openapi.json")).json()["paths"]
    assert {"/tasks", "/tasks/{task_id}", "/tasks/{task_id}/events", "/tasks/{task_id}:cancel"} <= set(paths)
    assert (await api.http.get(f"{api.entry}/docs")).status_code == 200
