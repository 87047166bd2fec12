"""Tasks and shots as documents: what is written is what is read, field by field."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.task import (
    MARKS,
    SCHEMA,
    Claim,
    Params,
    Plan,
    PlanState,
    Result,
    Shot,
    Source,
    Status,
    Task,
    final_status,
)

NOW = datetime(2025, 10, 13, 8, 0, tzinfo=UTC)
SOURCE = Source(
    url="https://photos.example/garment.jpg",
    sha256="ab" * 32,
    mime_type="image/jpeg",
    width=1200,
    height=1600,
    cos_key="sources/1.jpg",
    analysis={"dominant": "#aabbcc"},
)


def a_new_task() -> Task:
    return Task(
        task_id="task_1",
        user_id="openid-1",
        mode="photo_set",
        images=("cloud://env/1.jpg", "https://photos.example/garment.jpg"),
        params=Params(
            scene="商业摄影", style="现代简约", count=9, background="白墙", color="暖", aspect_ratio="1:1"
        ),
        prompt="袖口不要变形",
        model="gemini-2.5-flash-image",
        api_payload={"temperature": 0.4, "safetySettings": []},
        priority=3,
        callback_url="https://hooks.example/done",
        status=Status.PENDING,
        total=9,
        trace_id="0" * 31 + "1",
        idempotency_key="order-1",
        created_at=NOW,
        updated_at=NOW,
        deadline=NOW + timedelta(minutes=30),
        expire_at=NOW + timedelta(days=30),
        prompt_cache=False,
        counted=True,
        marks=dict.fromkeys(MARKS),
    )


def test_a_new_task_reads_back_as_it_was_written() -> None:
    task = a_new_task()
    assert Task.from_document(task.to_document()) == task


def test_a_task_with_sources_prompts_and_errors_reads_back_as_it_was_written() -> None:
    error = {"code": "TIMEOUT", "message": "late", "timestamp": NOW, "retry": 1}
    task = replace(
        a_new_task(), sources=(SOURCE,), prompts={"base": "b", "final": ["f"]}, errors=(error,), retry_count=2
    )
    assert Task.from_document(task.to_document()) == task


def test_a_new_task_has_the_seeds_first_values() -> None:
    """A-087."""
    document = a_new_task().to_document()
    assert (document["status"], document["errors"], document["retryCount"]) == ("pending", [], 0)
    assert document["createdAt"] == document["updatedAt"] == NOW


def test_a_tasks_document_has_the_fields_of_the_design() -> None:
    assert set(a_new_task().to_document()) >= {
        "taskId",
        "userId",
        "mode",
        "images",
        "params",
        "prompt",
        "model",
        "apiPayload",
        "priority",
        "callbackUrl",
        "status",
        "total",
        "prompts",
        "plan",
        "sources",
        "traceId",
        "idempotencyKey",
        *MARKS,
        "retryCount",
        "createdAt",
        "updatedAt",
        "expireAt",
    }


def test_a_tasks_document_says_by_which_schema_it_was_written() -> None:
    assert a_new_task().to_document()["schema"] == SCHEMA


def test_what_is_written_later_is_read_from_its_own_fields() -> None:
    """The plan, the marks, the metrics and the counts are written field by field as they come about."""
    until = NOW + timedelta(minutes=2)
    document: dict[str, Any] = a_new_task().to_document() | {
        "plan": {
            "state": "preparing",
            "token": "t",
            "until": until,
            "attempts": 2,
            "director": "llm",
        },
        "processingStartedAt": NOW,
        "metrics": {"totalTime": 1},
        "cancelledAt": NOW,
        "finished": {"completed": 9},
    }
    task = Task.from_document(document)
    assert task.plan == Plan(state=PlanState.PREPARING, token="t", until=until, attempts=2, director="llm")
    assert task.marks["processingStartedAt"] == NOW
    assert (task.metrics, task.finished) == ({"totalTime": 1}, {"completed": 9})
    assert task.cancelled_at == NOW


def test_a_document_of_an_older_release_may_lack_what_came_later() -> None:
    document = a_new_task().to_document()
    later = ("sources", "errors", "prompts", "retryCount", "idempotencyKey", "promptCache", "counted")
    for name in (*later, *MARKS):
        del document[name]
    document["plan"] = {}
    task = Task.from_document(document)
    assert (task.sources, task.errors, task.retry_count, task.idempotency_key) == ((), (), 0, None)
    assert (task.prompt_cache, task.counted, task.cancelled_at) == (True, False, None)
    assert task.plan == Plan()
    assert set(task.marks.values()) == {None}


def test_a_new_shot_reads_back_as_it_was_written() -> None:
    shot = Shot(index=3, status=Status.PENDING, due_at=NOW, enqueue_at=NOW + timedelta(seconds=90))
    assert Shot.from_document(shot.to_document()) == shot


def test_a_shot_keeps_its_history() -> None:
    error = {"code": "TIMEOUT", "message": "late", "timestamp": NOW, "retry": 1}
    shot = Shot(
        index=0,
        status=Status.FAILED,
        errors=(error,),
        attempts=4,
        retries={"TIMEOUT": 3},
        keys_used=("key1", "key2"),
    )
    assert Shot.from_document(shot.to_document()) == shot


def test_a_claim_is_read_from_a_shots_document() -> None:
    document = Shot(index=0, status=Status.PROCESSING).to_document() | {
        "claim": {"token": "t", "until": NOW, "keyId": "key1"}
    }
    assert Shot.from_document(document).claim == Claim(token="t", until=NOW, key_id="key1")
    assert Shot.from_document(document | {"claim": None}).claim is None


def test_a_result_has_the_seeds_fields() -> None:
    """A-034, and where the picture is kept."""
    result = Result(url="u", cos_key="k", sha256="s", width=1, height=2, timestamp=NOW)
    assert result.to_document() == {
        "url": "u",
        "cosKey": "k",
        "sha256": "s",
        "width": 1,
        "height": 2,
        "timestamp": NOW,
        "fromCache": False,
    }


@given(
    st.builds(
        Params,
        scene=st.none() | st.text(),
        style=st.none() | st.text(),
        count=st.integers(1, 500),
        background=st.none() | st.text(),
        color=st.none() | st.text(),
        aspect_ratio=st.sampled_from(["1:1", "3:4"]),
    )
)
def test_any_parameters_read_back_as_they_were_written(params: Params) -> None:
    assert Params.from_document(params.to_document()) == params


def test_a_source_reads_back_as_it_was_written() -> None:
    assert Source.from_document(SOURCE.to_document()) == SOURCE


@pytest.mark.parametrize("status", Status)
def test_only_pending_and_processing_are_not_final(status: Status) -> None:
    assert status.is_final is (status.value not in {"pending", "processing"})


@pytest.mark.parametrize(
    ("total", "completed", "cancelled", "status"),
    [
        (1, 1, 0, "completed"),
        (1, 0, 0, "failed"),
        (9, 9, 0, "completed"),
        (9, 8, 0, "partial"),
        (9, 1, 0, "partial"),
        (9, 0, 0, "failed"),
        (9, 0, 9, "cancelled"),
        (9, 4, 5, "cancelled"),  # what was paid for stays, and the task is still what its owner made it
        (9, 0, 1, "cancelled"),
    ],
)
def test_a_finished_task_is_called_by_how_its_shots_ended(
    total: int, completed: int, cancelled: int, status: str
) -> None:
    assert final_status(total=total, completed=completed, cancelled=cancelled) == status


def test_what_happened_to_a_shot_later_is_read_from_its_own_fields() -> None:
    document: dict[str, Any] = Shot(index=0, status=Status.PENDING).to_document() | {
        "prompt": "p",
        "fresh": True,
        "previous": [{"url": "old"}],
        "life": [{"step": "claimed"}],
        "timings": {"drawnAt": NOW},
    }
    shot = Shot.from_document(document)
    assert (shot.prompt, shot.fresh, shot.timings) == ("p", True, {"drawnAt": NOW})
    assert (shot.previous, shot.life) == (({"url": "old"},), ({"step": "claimed"},))
