"""Photos that can't be had or used: the task ends with the reason, and the callback says so."""

from __future__ import annotations

import pytest

from localcloud.faults import Rule
from tests.flows.embedded import System


@pytest.mark.parametrize(
    ("image", "code"),
    [
        ("https://127.0.0.1:1/private.jpg", "SOURCE_REFUSED"),
        ("https://169.254.169.254/latest/meta-data", "SOURCE_REFUSED"),
        ("https://nobody.invalid/garment.jpg", "SOURCE_UNAVAILABLE"),
        ("cloud://other-environment.bucket/x.jpg", "SOURCE_UNAVAILABLE"),
    ],
)
async def test_a_source_that_cannot_be_fetched_ends_the_task_with_the_reason(
    system: System, image: str, code: str
) -> None:
    task_id = await system.submit(count=3, images=[image], prompt=image)
    task = await system.wait_final(task_id)
    assert task["status"] == "failed"
    assert [shot["status"] for shot in task["shots"]] == ["failed"] * 3
    assert task["errors"][0]["code"] == code
    assert task["errors"][0]["retriable"] is False
    (callback,) = await system.wait_callbacks(task_id, 1)
    assert callback["body"]["eventType"] == "task.failed"
    assert callback["body"]["status"] == "failed"
    assert callback["body"]["error"]["code"] == code
    assert (await system.stats())["total"]["calls"] == 0


async def test_a_source_that_is_no_photo_is_refused_as_such(system: System) -> None:
    await system.misbehave("wechat", Rule(operation="download", error="40029"))
    task_id = await system.submit(count=2, prompt="no photo")
    task = await system.wait_final(task_id)
    assert task["status"] == "failed"
    assert task["errors"][0]["code"] == "INVALID_IMAGE_FORMAT"


async def test_a_source_that_fails_for_a_moment_is_asked_for_again(system: System) -> None:
    await system.misbehave("wechat", Rule(operation="download", error="http_500", times=1))
    task_id = await system.submit(count=2, prompt="asked again")
    task = await system.wait_final(task_id, seconds=30)
    assert task["status"] == "completed"


async def test_the_photos_are_fetched_once_however_many_shots_there_are(system: System) -> None:
    before = (await system.counts("wechat"))["calls"].get("download", 0)
    task_id = await system.submit(count=9, prompt="fetched once")
    assert (await system.wait_final(task_id))["status"] == "completed"
    assert (await system.counts("wechat"))["calls"]["download"] == before + 1
