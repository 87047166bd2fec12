"""The seed's metrics record (A-182 … A-190), from the marks of a task and the timings of its shots."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from shared.metrics import marks_of, task_metrics
from shared.task import Params, Shot, Status, Task

CREATED = datetime(2025, 10, 13, 8, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return CREATED + timedelta(seconds=seconds)


def a_task(**marks: datetime | None) -> Task:
    return Task(
        task_id="task_1",
        user_id="openid-1",
        mode="photo_set",
        images=("https://photos.example/garment.jpg",),
        params=Params(count=3),
        prompt="",
        model="gemini-2.5-flash-image",
        api_payload={},
        priority=0,
        callback_url="",
        status=Status.PROCESSING,
        total=3,
        trace_id="0" * 31 + "1",
        idempotency_key=None,
        created_at=CREATED,
        updated_at=CREATED,
        deadline=at(1800),
        expire_at=at(86_400),
        marks=marks,
    )


def a_shot(
    index: int,
    *,
    drawn: float | None = None,
    stored: float | None = None,
    keys: tuple[str, ...] = (),
    retries: dict[str, int] | None = None,
) -> Shot:
    timings = {
        name: at(seconds)
        for name, seconds in (("drawnAt", drawn), ("storedAt", stored))
        if seconds is not None
    }
    return Shot(index=index, status=Status.COMPLETED, timings=timings, keys_used=keys, retries=retries or {})


STARTED = a_task(processingStartedAt=at(1), promptGeneratedAt=at(3.5))
SHOTS = [
    a_shot(0, drawn=10, stored=11, keys=("key1",)),
    a_shot(1, drawn=12.25, stored=13, keys=("key2", "key1"), retries={"TIMEOUT": 2, "INTERNAL_ERROR": 1}),
    a_shot(2, drawn=11, stored=15.001, keys=("key2",), retries={"RATE_LIMIT_EXCEEDED": 1}),
]


def metrics(task: Task = STARTED, shots: list[Shot] | None = None) -> dict[str, Any]:
    return task_metrics(task, SHOTS if shots is None else shots, now=at(60))


def test_the_record_has_the_seeds_fields_and_no_others() -> None:
    assert list(metrics()) == [
        "taskId",
        "queueWaitTime",
        "promptGenerationTime",
        "imageGenerationTime",
        "uploadTime",
        "totalTime",
        "retryCount",
        "apiKeysUsed",
    ]


def test_the_record_names_its_task() -> None:
    """A-182."""
    assert metrics()["taskId"] == "task_1"


def test_waiting_lasts_from_creation_to_the_start() -> None:
    """A-183, in milliseconds."""
    assert metrics()["queueWaitTime"] == 1000


def test_prompts_take_from_the_start_until_they_are_made() -> None:
    """A-184."""
    assert metrics()["promptGenerationTime"] == 2500


def test_drawing_lasts_until_the_last_picture_is_drawn() -> None:
    """A-185."""
    assert metrics()["imageGenerationTime"] == 8750


def test_uploading_lasts_from_the_last_drawing_to_the_last_picture_stored() -> None:
    """A-186."""
    assert metrics()["uploadTime"] == 2751


def test_the_total_is_from_creation_to_the_last_picture_stored() -> None:
    """A-187."""
    assert metrics()["totalTime"] == 15_001


def test_the_parts_add_up_to_the_total() -> None:
    found = metrics()
    parts = ("queueWaitTime", "promptGenerationTime", "imageGenerationTime", "uploadTime")
    assert sum(found[part] for part in parts) == found["totalTime"]


def test_retries_of_all_shots_and_all_codes_are_counted() -> None:
    """A-188."""
    assert metrics()["retryCount"] == 4


def test_a_key_that_drew_several_pictures_counts_once() -> None:
    """A-189."""
    assert metrics()["apiKeysUsed"] == 2


def test_the_record_can_be_logged_as_json() -> None:
    """A-190: what is logged is plain numbers and texts."""
    assert json.loads(json.dumps(metrics())) == metrics()


def test_a_part_that_never_began_or_never_ended_has_no_time() -> None:
    found = metrics(a_task(), [])
    assert found["queueWaitTime"] is None
    assert found["promptGenerationTime"] is None
    assert found["imageGenerationTime"] is None
    assert found["uploadTime"] is None
    assert (found["retryCount"], found["apiKeysUsed"]) == (0, 0)


def test_a_task_whose_preparation_failed_has_waited_and_nothing_more() -> None:
    found = metrics(a_task(processingStartedAt=at(1)), [a_shot(0)])
    assert found["queueWaitTime"] == 1000
    assert found["promptGenerationTime"] is None


def test_the_total_of_a_task_without_a_picture_ends_now() -> None:
    assert metrics(STARTED, [a_shot(0)])["totalTime"] == 60_000


def test_shots_that_failed_do_not_hide_the_times_of_those_that_did_not() -> None:
    found = metrics(STARTED, [SHOTS[0], a_shot(1, retries={"TIMEOUT": 3}, keys=("key3",))])
    assert (found["imageGenerationTime"], found["uploadTime"]) == (6500, 1000)
    assert (found["retryCount"], found["apiKeysUsed"]) == (3, 2)


def test_the_tasks_last_two_marks_come_from_its_shots() -> None:
    assert marks_of(SHOTS) == {"imagesGeneratedAt": at(12.25), "uploadCompletedAt": at(15.001)}
    assert marks_of([]) == {"imagesGeneratedAt": None, "uploadCompletedAt": None}
