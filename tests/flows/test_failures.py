"""What breaks and what then happens, on the running system: keys, storage, receivers, limits, changes of mind."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from localcloud.environment import equal_keys
from localcloud.faults import Rule
from tests.flows.embedded import System, embedded

QUICK = {"SLOT_WAIT_SECONDS": "1", "CALLBACK_TIMEOUT_SECONDS": "2"}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def pool() -> AsyncIterator[System]:
    async with embedded(keys=equal_keys(4, 2), settings=QUICK, sweep_seconds=2) as system:
        yield system


@pytest_asyncio.fixture(loop_scope="session")
async def keys(pool: System) -> AsyncIterator[System]:
    """A system whose pool is whole again, and whose generate process knows it."""
    yield pool
    await pool.behave()
    await pool.forget_stats()
    ailing = [d.reference async for d in pool.firestore.collection("domains").stream()]
    disabled = [d.reference async for d in pool.firestore.collection("keys").stream() if not d.get("enabled")]
    for reference in ailing:
        await reference.delete()
    for reference in disabled:
        await reference.update({"enabled": True, "disabledReason": None})
    if ailing or disabled:
        await pool.supervisor.restart("generate")


def codes(task: dict[str, Any]) -> list[str]:
    return [error["code"] for error in task["errors"]]


async def test_a_rate_limited_key_cools_its_domain_and_the_shot_goes_on_with_another(keys: System) -> None:
    """A-216, A-217."""
    await keys.misbehave(
        "gemini", Rule(operation="generateContent:key1", error="429_minute", detail={"retryDelay": "30s"})
    )
    task = await keys.wait_final(await keys.submit(count=8, prompt="one key limited"))
    assert task["status"] == "completed"
    assert set(codes(task)) <= {"RATE_LIMIT_EXCEEDED"}
    stats = await keys.stats()
    # What was in flight when the first answer came had to fail too; nobody asked again after that.
    assert stats["keys"]["key1"]["calls"] <= 2
    listed = await keys.supervisor.run_admin("keys", "list")
    assert "gemini-2.5-flash-image" in next(line for line in listed.splitlines() if line.startswith("key1"))


async def test_keys_of_one_project_cool_together() -> None:
    shared = [key.__class__(**{**_fields(key), "quota_domain": "one"}) for key in equal_keys(2, 2)]
    async with embedded(keys=shared, settings=QUICK) as system:
        rule = Rule(operation="generateContent:*", error="429_minute", times=1, detail={"retryDelay": "3s"})
        await system.misbehave("gemini", rule)
        task = await system.wait_final(await system.submit(count=4, prompt="one project"))
        assert task["status"] == "completed"
        domain = await system.document("domains/one")
        assert domain is not None
        assert set(domain["coolUntil"]) == {"gemini-2.5-flash-image"}
        assert domain["hits"] == {"gemini-2.5-flash-image": 0}


def _fields(key: Any) -> dict[str, Any]:
    return {name: getattr(key, name) for name in ("id", "secret", "weight", "max_concurrent", "quota_domain")}


async def test_a_pool_that_is_used_up_recovers_by_itself_with_one_call_at_a_time() -> None:
    """A-219. After the cooling one call tries the domain; only then the herd follows."""
    async with embedded(keys=equal_keys(1, 4), latency=0.5, settings=QUICK) as system:
        rule = Rule(operation="generateContent:*", error="429_minute", times=4, detail={"retryDelay": "2s"})
        await system.misbehave("gemini", rule)
        task_id = await system.submit(count=6, prompt="used up")
        highest = 0
        async with asyncio.timeout(40):
            while (task := await system.task(task_id))["status"] not in ("completed", "failed", "partial"):
                stats = await system.stats()
                if stats["total"]["ok"] == 0 and stats["total"]["errors"].get("429", 0) == 4:
                    highest = max(highest, stats["total"]["concurrency"])
                await asyncio.sleep(0.05)
        assert task["status"] == "completed"
        assert highest == 1
        assert Counter(codes(task)) == {"RATE_LIMIT_EXCEEDED": 4}
        assert (await system.stats())["total"]["calls"] == 10


async def test_a_refused_key_is_disabled_loudly_and_the_shot_goes_on(keys: System) -> None:
    await keys.misbehave("gemini", Rule(operation="generateContent:key2", error="400_key"))
    task = await keys.wait_final(await keys.submit(count=8, prompt="a bad key"))
    assert task["status"] == "completed"
    key = await keys.document("keys/key2")
    assert key is not None
    assert (key["enabled"], key["disabledReason"]) == (False, "INVALID_API_KEY")
    alarms = [line for line in keys.log_lines("generate") if line["message"] == "key.disabled"]
    assert {(line["severity"], line["key"]) for line in alarms} == {("ERROR", "key2")}


async def test_when_the_last_key_is_refused_the_shots_fail_with_that_reason() -> None:
    async with embedded(keys=equal_keys(1, 2), settings=QUICK) as system:
        await system.misbehave("gemini", Rule(operation="generateContent:*", error="400_key"))
        task_id = await system.submit(count=2, prompt="no key left", params={"count": 2})
        task = await system.wait_final(task_id, seconds=30)
        assert task["status"] == "failed"
        assert "INVALID_API_KEY" in codes(task)
        assert any(line["message"] == "pool.empty" for line in system.log_lines("generate"))


@pytest.mark.parametrize(
    ("fault", "code", "calls"),
    [
        ("safety", "CONTENT_POLICY_VIOLATION", 1),
        ("no_image", "NO_IMAGE_RETURNED", 3),
        ("garbage", "NO_IMAGE_RETURNED", 3),
        ("truncated", "NO_IMAGE_RETURNED", 3),
    ],
)
async def test_one_shot_may_fail_and_its_siblings_go_on(
    keys: System, fault: str, code: str, calls: int
) -> None:
    await keys.misbehave("gemini", Rule(operation="generateContent:*", error=fault, times=calls))
    task_id = await keys.submit(count=1, prompt=fault)
    task = await keys.wait_final(task_id, seconds=30)
    assert task["status"] == "failed"
    assert codes(task) == [code] * calls
    assert [error.get("retry") for error in task["errors"]] == [*range(1, calls), None]
    callbacks = await keys.wait_callbacks(task_id, 2)
    told = {callback["body"]["eventType"]: callback["body"] for callback in callbacks}
    assert told["image.failed"]["error"]["code"] == code
    assert told["task.failed"]["error"]["code"] == code


async def test_storage_that_fails_for_a_while_costs_no_second_drawing(keys: System) -> None:
    await keys.misbehave("cos", Rule(operation="PutObject", error="503", times=2))
    task = await keys.wait_final(await keys.submit(count=3, prompt="storage down"), seconds=60)
    assert task["status"] == "completed"
    assert (await keys.stats())["total"]["calls"] == 3


async def test_storage_that_stays_down_keeps_the_pictures_that_are_paid_for() -> None:
    async with embedded(settings={"UPLOAD_SECONDS": "2"}) as system:
        task_id = await system.submit(count=3, prompt="storage stays down")
        await system.wait_document(f"tasks/{task_id}", lambda d: d["plan"]["state"] == "ready")
        await system.misbehave("cos", Rule(operation="PutObject", error="503"))
        done = [shot for shot in (await system.task(task_id))["shots"] if shot["status"] == "completed"]
        for shot in range(len(done), 3):
            await system.wait_document(
                f"tasks/{task_id}/shots/{shot}", lambda d: "stash" in d or "result" in d
            )
        await system.behave()
        task = await system.wait_final(task_id, seconds=60)
        assert task["status"] == "completed"
        assert (await system.stats())["total"]["calls"] == 3
        for result in task["results"]:
            assert (await system.http.get(result["url"])).status_code == 200
        assert [d.id async for d in system.firestore.collection("stash").stream()] == []


async def test_a_receiver_that_is_down_gets_every_callback_once_it_is_up(keys: System) -> None:
    await keys.misbehave("receiver", Rule(operation="callback", error="500", times=5))
    task_id = await keys.submit(count=3, prompt="receiver down")
    await keys.wait_final(task_id)
    listed = await keys.supervisor.run_admin("callbacks", "list", task_id)
    assert "not delivered" in listed
    callbacks = await keys.wait_callbacks(task_id, 4, seconds=40)
    assert Counter(callback["body"]["eventType"] for callback in callbacks) == {
        "image.generated": 3,
        "task.completed": 1,
    }
    event = (await keys.http.get(f"{keys.entry}/tasks/{task_id}/events")).json()["events"][-1]
    kept = await keys.wait_document(f"events/{event['eventId']}", lambda d: d.get("undelivered") == [])
    assert kept["deliveries"]["notification"]["state"] == "delivered"


async def test_an_event_that_was_delivered_stays_so_when_it_is_told_again_and_refused(keys: System) -> None:
    """Cloud Tasks may call twice, and the second time late: by then nobody would try again what failed."""
    await keys.misbehave("receiver", Rule(operation="callback", error="500", times=1))
    task_id = await keys.submit(count=1, prompt="told twice")
    await keys.wait_final(task_id)
    answer = await keys.http.get(f"{keys.entry}/tasks/{task_id}/events")
    events = [event for event in answer.json()["events"] if event["eventType"] == "image.generated"]
    path = f"events/{events[0]['eventId']}"
    delivered = await keys.wait_document(path, lambda d: d.get("undelivered") == [])
    assert delivered["deliveries"]["notification"]["tries"] == 2

    await keys.misbehave("receiver", Rule(operation="callback", error="500"))
    body = json.dumps({"taskId": task_id, "events": events}).encode()
    await keys.call_complete(body)
    await keys.behave()
    again = await keys.document(path)
    assert again is not None
    assert again["undelivered"] == []
    assert again["deliveries"]["notification"]["state"] == "delivered"


@pytest.mark.parametrize("fault", ["redirect", "disconnect", "hang"])
async def test_a_receiver_that_answers_oddly_is_tried_again_and_believed_only_when_it_says_yes(
    keys: System, fault: str
) -> None:
    await keys.misbehave("receiver", Rule(operation="callback", error=fault, times=2))
    task_id = await keys.submit(count=1, prompt=f"receiver {fault}")
    await keys.wait_final(task_id)
    callbacks = await keys.wait_callbacks(task_id, 2, seconds=40)
    assert all(callback["verified"] for callback in callbacks)


async def test_undelivered_callbacks_can_be_redriven_by_hand(keys: System) -> None:
    await keys.misbehave("receiver", Rule(operation="callback", error="410"))
    task_id = await keys.submit(count=1, prompt="redriven")
    await keys.wait_final(task_id)
    event = (await keys.http.get(f"{keys.entry}/tasks/{task_id}/events")).json()["events"][-1]
    await keys.wait_document(f"events/{event['eventId']}", lambda d: bool(d.get("undelivered")))
    assert "410" in await keys.supervisor.run_admin("callbacks", "list", task_id)
    await keys.behave()
    assert "are tried again" in await keys.supervisor.run_admin("callbacks", "redrive", task_id)
    await keys.wait_callbacks(task_id, 2)


async def test_cancelling_stops_what_is_unfinished_and_keeps_what_is_done(keys: System) -> None:
    await keys.http.put(f"{keys.addresses.gemini}/latency", json={"latency": 0.4, "jitter": 0.0})
    try:
        task_id = await keys.submit(count=40, prompt="cancelled")
        async with asyncio.timeout(20):
            while (await keys.task(task_id))["counts"]["completed"] < 5:
                await asyncio.sleep(0.05)
        url = f"{keys.entry}/tasks/{task_id}"
        answer = await keys.http.post(f"{url}:cancel")
        assert (answer.status_code, answer.json()["status"]) == (202, "cancelled")
        task = await keys.task(task_id)
    finally:
        await keys.http.put(f"{keys.addresses.gemini}/latency", json={"latency": 0.05, "jitter": 0.0})
    assert task["status"] == "cancelled"
    counts = task["counts"]
    assert counts["completed"] >= 5
    assert counts["cancelled"] == 40 - counts["completed"]
    again = await keys.http.post(f"{url}:cancel")
    assert (again.status_code, again.json()["code"]) == (409, "ALREADY_FINAL")
    final = await keys.wait_callbacks(task_id, counts["completed"] + 1)
    assert [c["body"]["status"] for c in final if c["body"]["eventType"] == "task.cancelled"] == ["cancelled"]
    await asyncio.sleep(1)
    assert (await keys.task(task_id))["counts"] == counts


async def test_failed_shots_are_tried_again_on_request(keys: System) -> None:
    await keys.misbehave("gemini", Rule(operation="generateContent:*", error="safety", times=2))
    task_id = await keys.submit(count=4, prompt="retried")
    task = await keys.wait_final(task_id)
    assert (task["status"], task["counts"]["failed"]) == ("partial", 2)
    url = f"{keys.entry}/tasks/{task_id}"
    listed = await keys.supervisor.run_admin("failed", "list", task_id)
    assert "CONTENT_POLICY_VIOLATION" in listed
    answer = await keys.http.post(f"{url}:retry")
    assert (answer.status_code, answer.json()["retried"]) == (202, 2)
    assert (await keys.wait_final(task_id))["status"] == "completed"
    nothing = await keys.http.post(f"{url}:retry")
    assert (nothing.status_code, nothing.json()["code"]) == (409, "NOTHING_TO_RETRY")
    assert (await keys.stats())["total"]["ok"] == 4


async def test_a_failed_preparation_can_be_retried_too(keys: System) -> None:
    await keys.misbehave("wechat", Rule(operation="batchdownloadfile", error="http_404", times=1))
    task_id = await keys.submit(count=2, prompt="sources come back")
    task = await keys.wait_final(task_id)
    if task["status"] == "failed":
        await keys.supervisor.run_admin("failed", "redrive", task_id)
        task = await keys.wait_final(task_id)
    assert task["status"] == "completed"


async def test_a_shot_is_drawn_anew_on_request_and_its_old_picture_is_kept(keys: System) -> None:
    task_id = await keys.submit(count=2, prompt="drawn anew")
    before = await keys.wait_final(task_id)
    url = f"{keys.entry}/tasks/{task_id}/shots"
    answer = await keys.http.post(f"{url}/1:regenerate")
    assert answer.status_code == 202
    after = await keys.wait_final(task_id)
    assert after["status"] == "completed"
    assert after["results"][0]["url"] == before["results"][0]["url"]
    assert after["results"][1]["url"] != before["results"][1]["url"]
    assert after["results"][1]["fromCache"] is False
    assert after["shots"][1]["previous"] == [before["results"][1]["url"]]
    assert (await keys.http.post(f"{url}/2:regenerate")).status_code == 404


async def test_the_same_picture_is_not_drawn_twice_for_one_user_and_never_shared_with_another(
    keys: System,
) -> None:
    both = await asyncio.gather(*(keys.submit(count=1, prompt="the same", userId="ann") for _ in range(2)))
    tasks = [await keys.wait_final(task_id) for task_id in both]
    assert [task["status"] for task in tasks] == ["completed"] * 2
    assert sorted(task["results"][0]["fromCache"] for task in tasks) == [False, True]
    assert (await keys.stats())["total"]["calls"] == 1
    other = await keys.wait_final(await keys.submit(count=1, prompt="the same", userId="bob"))
    assert other["results"][0]["fromCache"] is False
    fresh = await keys.submit(count=1, prompt="the same", userId="ann", promptCache=False)
    assert (await keys.wait_final(fresh))["results"][0]["fromCache"] is False
    assert (await keys.stats())["total"]["calls"] == 3
    again = await keys.wait_final(await keys.submit(count=1, prompt="the same", userId="ann"))
    picture = again["results"][0]
    assert picture["fromCache"] is True
    assert (await keys.http.get(picture["url"])).status_code == 200


async def test_firestore_that_aborts_and_disappears_now_and_then_loses_nothing(keys: System) -> None:
    """A-220."""
    await keys.misbehave(
        "firestore",
        Rule(operation="Commit", error="ABORTED", probability=0.15),
        Rule(operation="*", error="UNAVAILABLE", probability=0.05),
        Rule(operation="Commit", error="UNAVAILABLE", probability=0.05, phase="after"),
    )
    task_id = await keys.submit(count=12, prompt="unsteady")
    task = await keys.wait_final(task_id, seconds=90)
    await keys.behave()
    assert task["status"] == "completed"
    assert (await keys.stats())["total"]["calls"] == 12


async def test_a_hundred_tasks_at_once_all_end_and_no_key_is_overused(keys: System) -> None:
    """A-218."""
    ids = await asyncio.gather(*(keys.submit(count=1, prompt=f"hundred {n}") for n in range(100)))
    tasks = await asyncio.gather(*(keys.wait_final(task_id, seconds=90) for task_id in ids))
    assert Counter(task["status"] for task in tasks) == {"completed": 100}
    stats = await keys.stats()
    assert stats["total"]["errors"] == {}
    for key in stats["keys"].values():
        assert key["maxConcurrency"] <= key["maxConcurrent"]
    # the load is spread over the keys.
    assert all(key["calls"] >= 10 for key in stats["keys"].values())


async def test_the_life_of_a_shot_can_be_explained(keys: System) -> None:
    await keys.misbehave("gemini", Rule(operation="generateContent:*", error="no_image", times=1))
    task_id = await keys.submit(count=1, prompt="explained")
    await keys.wait_final(task_id, seconds=30)
    life = await keys.supervisor.run_admin("explain", task_id, "0")
    assert "NO_IMAGE_RETURNED from key" in life
    assert "tried again at" in life
    assert life.count("drawing with key") == 2
    assert "drawn and stored" in life
    whole = await keys.supervisor.run_admin("explain", task_id)
    assert "completed" in whole
    assert "metrics:" in whole


async def test_a_trace_leads_from_the_request_to_the_callback(keys: System) -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    headers = {"traceparent": f"00-{trace}-00f067aa0ba902b7-01"}
    task_id = await keys.submit(count=1, prompt="traced", headers=headers)
    await keys.wait_final(task_id)
    callbacks = await keys.wait_callbacks(task_id, 2)
    assert {callback["body"]["traceId"] for callback in callbacks} == {trace}
    for function, word in (
        ("entry", "task.created"),
        ("generate", "shot.generated"),
        ("complete", "task.finished"),
    ):
        lines = [line for line in keys.log_lines(function) if line.get("traceId") == trace]
        assert word in {line["message"] for line in lines}


async def test_a_task_whose_time_is_up_ends_with_the_reason() -> None:
    settings = QUICK | {"TASK_DEADLINE_SECONDS": "10"}
    async with embedded(keys=equal_keys(1, 1), settings=settings, sweep_seconds=1) as system:
        rule = Rule(operation="generateContent:*", error="429_minute", detail={"retryDelay": "3600s"})
        await system.misbehave("gemini", rule)
        task_id = await system.submit(count=3, prompt="too late")
        task = await system.wait_final(task_id, seconds=60)
        assert task["status"] == "failed"
        assert {shot["error"]["code"] for shot in task["shots"]} <= {
            "NO_AVAILABLE_API_KEYS",
            "RATE_LIMIT_EXCEEDED",
            "DEADLINE_EXCEEDED",
        }
        assert (await system.stats())["total"]["calls"] == 1


async def test_a_users_limits_are_exact_under_a_hundred_requests_at_once() -> None:
    settings = {"USER_OPEN_TASKS": "10", "USER_PICTURES_PER_DAY": "30"}
    async with embedded(settings=settings, latency=1.0) as system:
        answers = await asyncio.gather(*(system.post(system.wish(prompt=f"limit {n}")) for n in range(100)))
        assert Counter(answer.status_code for answer in answers) == {202: 10, 429: 90}
        refused = next(answer for answer in answers if answer.status_code == 429)
        assert refused.json()["code"] == "TOO_MANY_OPEN_TASKS"
        assert int(refused.headers["retry-after"]) > 0
        other = await system.post(system.wish(userId="somebody else"))
        assert other.status_code == 202
        for answer in answers:
            if answer.status_code == 202:
                await system.wait_final(answer.json()["taskId"])
        too_many = await system.post(system.wish(count=21))
        assert (too_many.status_code, too_many.json()["code"]) == (429, "DAILY_LIMIT_REACHED")
        assert (await system.post(system.wish(count=20))).status_code == 202
