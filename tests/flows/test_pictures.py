"""From the request to the last callback: what a mini-program sees of the whole system."""

from __future__ import annotations

import asyncio
import io
import json

from PIL import Image

from localcloud.faults import Rule
from tests.flows.embedded import System, embedded


async def test_one_shot_becomes_a_picture_that_can_be_fetched(system: System) -> None:
    """A-214."""
    task_id = await system.submit(count=1, prompt="one shot")
    task = await system.wait_final(task_id)
    assert task["status"] == "completed"
    assert task["counts"] == {
        "pending": 0,
        "processing": 0,
        "completed": 1,
        "failed": 0,
        "cancelled": 0,
        "total": 1,
    }
    (result,) = task["results"]
    answer = await system.http.get(result["url"])
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "image/webp"
    with Image.open(io.BytesIO(answer.content)) as picture:
        assert picture.size == (result["width"], result["height"])


async def test_a_set_of_nine_is_nine_different_pictures_drawn_at_once(system: System) -> None:
    """A-215."""
    task_id = await system.submit(count=9, prompt="a set")
    task = await system.wait_final(task_id)
    assert [shot["status"] for shot in task["shots"]] == ["completed"] * 9
    assert task["progress"] == 1.0
    assert len(set(task["prompts"]["final"])) == 9
    pictures = await asyncio.gather(*(system.http.get(result["url"]) for result in task["results"]))
    assert len({picture.content for picture in pictures}) == 9
    stats = await system.stats()
    assert stats["total"]["calls"] == 9
    assert stats["total"]["maxConcurrency"] > 1


async def test_every_picture_is_told_of_with_the_seeds_fields_and_a_signature(system: System) -> None:
    task_id = await system.submit(count=4, prompt="told of")
    task = await system.wait_final(task_id)
    callbacks = await system.wait_callbacks(task_id, 5)
    assert all(callback["verified"] for callback in callbacks)
    assert len({callback["webhookId"] for callback in callbacks}) == 5
    bodies = [callback["body"] for callback in callbacks]
    shots = [body for body in bodies if body["eventType"] == "image.generated"]
    assert sorted(body["currentResult"]["index"] for body in shots) == [0, 1, 2, 3]
    urls = {result["index"]: result["url"] for result in task["results"]}
    for body in shots:
        assert body["status"] == "processing"
        assert body["progress"] == body["completed"] / 4
        assert body["currentResult"]["url"] == urls[body["currentResult"]["index"]]
        assert {"eventId", "traceId", "timestamp", "source", "payload", "taskId"} <= set(body)
    (final,) = [body for body in bodies if body["eventType"] == "task.completed"]
    assert final["status"] == "completed"
    assert final["progress"] == 1
    assert final["payload"]["metrics"] == task["metrics"]


async def test_the_metrics_record_is_kept_and_adds_up(system: System) -> None:
    """A-182 … A-190."""
    task_id = await system.submit(count=3, prompt="metrics")
    metrics = (await system.wait_final(task_id))["metrics"]
    assert metrics["taskId"] == task_id
    parts = ("queueWaitTime", "promptGenerationTime", "imageGenerationTime", "uploadTime")
    assert all(metrics[part] >= 0 for part in parts)
    assert abs(sum(metrics[part] for part in parts) - metrics["totalTime"]) <= len(parts)
    assert metrics["retryCount"] == 0
    assert 1 <= metrics["apiKeysUsed"] <= 3
    finished = [line for line in system.log_lines("complete") if line["message"] == "task.finished"]
    assert [line["metrics"] for line in finished if line["task_id"] == task_id] == [metrics]


async def test_five_hundred_shots_are_one_task(system: System) -> None:
    await system.http.put(f"{system.addresses.gemini}/latency", json={"latency": 0.0, "jitter": 0.0})
    try:
        task_id = await system.submit(count=500, prompt="five hundred")
        task = await system.wait_final(task_id, seconds=100)
    finally:
        await system.http.put(f"{system.addresses.gemini}/latency", json={"latency": 0.05, "jitter": 0.0})
    assert task["status"] == "completed"
    assert len(task["results"]) == 500
    assert len({result["url"] for result in task["results"]}) == 500
    stats = await system.stats()
    assert stats["total"]["calls"] == 500
    assert stats["total"]["errors"] == {}
    for key in stats["keys"].values():
        assert key["maxConcurrency"] <= key["maxConcurrent"]


async def test_a_task_can_be_read_cheaply_while_nothing_changes(system: System) -> None:
    task_id = await system.submit(count=1, prompt="etag")
    await system.wait_final(task_id)
    url = f"{system.entry}/tasks/{task_id}"
    first = await system.http.get(url)
    assert "retry-after" not in first.headers
    again = await system.http.get(url, headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


async def test_a_users_tasks_are_listed_newest_first_page_by_page(system: System) -> None:
    made = [await system.submit(userId="lister", prompt=f"page {number}") for number in range(5)]
    seen: list[str] = []
    token = ""
    while True:
        query = f"pageSize=2{f'&pageToken={token}' if token else ''}"
        answer = await system.http.get(f"{system.entry}/tasks?{query}", headers={"X-User-Id": "lister"})
        page = answer.json()
        assert len(page["tasks"]) <= 2
        seen += [task["taskId"] for task in page["tasks"]]
        token = page.get("nextPageToken", "")
        if not token:
            break
    assert seen == made[::-1]


async def test_events_can_be_caught_up_with_from_any_position(system: System) -> None:
    task_id = await system.submit(count=2, prompt="catch up")
    await system.wait_final(task_id)
    await system.wait_callbacks(task_id, 3)
    url = f"{system.entry}/tasks/{task_id}/events"
    everything = (await system.http.get(url)).json()["events"]
    types = [event["eventType"] for event in everything]
    assert types[0] == "task.created"
    assert types[-1] == "task.completed"
    assert sorted(types[1:-1]) == [
        "image.analyzed",
        "image.downloaded",
        "image.generated",
        "image.generated",
        "image.metadata_extracted",
    ]
    position = f"{everything[2]['timestamp']}-{everything[2]['eventId']}"
    rest = (await system.http.get(f"{url}?after={position}")).json()["events"]
    assert [event["eventId"] for event in rest] == [event["eventId"] for event in everything[3:]]


async def test_events_are_streamed_until_the_end_and_resumed_where_they_broke_off(system: System) -> None:
    await system.misbehave("gemini", Rule(operation="generateContent*", latency=0.3))
    task_id = await system.submit(count=2, prompt="streamed")
    url = f"{system.entry}/tasks/{task_id}/events"
    seen: dict[str, dict[str, object]] = {}
    ended = False
    headers = {"Accept": "text/event-stream"}
    async with system.http.stream("GET", url, headers=headers) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        position = ""
        async for line in stream.aiter_lines():
            if line.startswith("id:"):
                position = line.removeprefix("id:").strip()
            elif line.startswith("data:") and line != "data: {}":
                seen[position] = json.loads(line.removeprefix("data:"))
            ended = ended or line == "event: end"
    assert ended
    types = [event["eventType"] for event in seen.values()]
    assert types.count("image.generated") == 2
    assert types[-1] == "task.completed"
    first = next(iter(seen))
    async with system.http.stream("GET", url, headers=headers | {"Last-Event-ID": first}) as stream:
        resumed = [line async for line in stream.aiter_lines() if line.startswith("id:")]
    assert [line.removeprefix("id:").strip() for line in resumed] == list(seen)[1:]


async def test_only_so_many_streams_are_open_at_once() -> None:
    async with embedded(settings={"MAX_EVENT_STREAMS": "1"}, functions=("entry",)) as system:
        url = f"{system.entry}/tasks/{await system.submit()}/events"
        headers = {"Accept": "text/event-stream"}
        async with system.http.stream("GET", url, headers=headers) as stream:
            lines = stream.aiter_lines()
            assert await anext(lines) == "retry: 2000"
            refused = await asyncio.wait_for(system.http.get(url, headers=headers), 10)
            assert (refused.status_code, refused.json()["code"]) == (503, "TOO_MANY_STREAMS")
            assert int(refused.headers["retry-after"]) > 0


async def test_the_tags_of_a_task_are_indexed(system: System) -> None:
    task_id = await system.submit(count=1, prompt="tags")
    await system.wait_final(task_id)
    found = await system.wait_document(f"tagIndex/{task_id}", lambda d: len(d["tags"]) > 3)
    assert {"normal", "商业摄影", "现代简约"} <= set(found["tags"])


async def test_without_a_language_model_the_poses_come_from_the_library_and_it_is_said_so(
    system: System,
) -> None:
    await system.misbehave("openai", Rule(operation="*", error="503"))
    task_id = await system.submit(count=3, prompt="no director")
    task = await system.wait_final(task_id)
    assert task["status"] == "completed"
    assert task["posesFrom"] == "library"
    assert len(set(task["prompts"]["actions"])) == 3


async def test_a_broken_answer_of_the_language_model_is_mended(system: System) -> None:
    await system.misbehave("openai", Rule(operation="*", error="too_few"))
    task_id = await system.submit(count=5, prompt="mended")
    task = await system.wait_final(task_id)
    assert task["status"] == "completed"
    assert task["posesFrom"] == "repaired"
    assert len(set(task["prompts"]["actions"])) == 5
