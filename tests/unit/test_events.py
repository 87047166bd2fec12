"""The seed's envelope and types, and who hears of what."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared import events
from shared.clock import from_unix_ms, unix_ms
from shared.events import FINAL_TYPES, SHOT_TYPES, TYPES, WANTED, Event, read_envelope, subscribers_of

NOW = datetime(2025, 10, 13, 8, 0, tzinfo=UTC)


def an_event(task_id: str | None = "task_1") -> Event:
    return Event(
        event_id="5a4bb6a8-61f7-4d0e-9d5e-0f6ad7f1ab34",
        event_type=events.IMAGE_GENERATED,
        task_id=task_id,
        trace_id="0" * 31 + "1",
        timestamp=NOW + timedelta(milliseconds=123),
        source="generate",
        payload={"index": 3},
    )


def test_an_envelope_has_the_seeds_seven_fields_exactly() -> None:
    assert an_event().envelope() == {
        "eventId": "5a4bb6a8-61f7-4d0e-9d5e-0f6ad7f1ab34",
        "eventType": "image.generated",
        "taskId": "task_1",
        "traceId": "0" * 31 + "1",
        "timestamp": 1_760_342_400_123,
        "source": "generate",
        "payload": {"index": 3},
    }


@pytest.mark.parametrize("task_id", ["task_1", None])
def test_an_envelope_reads_back_as_it_was_written(task_id: str | None) -> None:
    event = an_event(task_id)
    assert read_envelope(event.envelope()) == event


def test_an_event_of_no_task_has_no_task_id() -> None:
    assert "taskId" not in an_event(task_id=None).envelope()


def test_an_envelope_is_json() -> None:
    assert json.loads(json.dumps(an_event().envelope())) == an_event().envelope()


def test_the_types_are_those_of_the_design() -> None:
    assert set(TYPES) == {
        "task.created",
        "image.downloaded",
        "image.metadata_extracted",
        "image.analyzed",
        "image.generated",
        "image.failed",
        "task.completed",
        "task.failed",
        "task.cancelled",
    }


def test_image_processed_is_never_used() -> None:
    assert "image.processed" not in TYPES


@pytest.mark.parametrize(
    ("event_type", "names"),
    [
        ("task.created", ["analytics"]),
        ("image.downloaded", ["analytics"]),
        ("image.metadata_extracted", ["analytics"]),
        ("image.analyzed", ["analytics", "tag-indexer"]),
        ("image.generated", ["analytics", "notification"]),
        ("image.failed", ["analytics", "notification"]),
        ("task.completed", ["analytics", "notification", "tag-indexer"]),
        ("task.failed", ["analytics", "notification"]),
        ("task.cancelled", ["analytics", "notification"]),
    ],
)
def test_each_event_goes_to_those_who_asked_for_it(event_type: str, names: list[str]) -> None:
    assert sorted(subscribers_of(event_type)) == names


def test_an_event_of_an_unknown_type_goes_to_nobody() -> None:
    assert subscribers_of("image.processed") == []


def test_nobody_asks_for_an_event_that_does_not_exist() -> None:
    assert frozenset().union(*WANTED.values()) <= TYPES
    assert FINAL_TYPES | SHOT_TYPES <= TYPES
    assert not FINAL_TYPES & SHOT_TYPES


@given(st.integers(0, 4_102_444_800_000))
def test_a_time_in_milliseconds_reads_back_as_it_was_written(milliseconds: int) -> None:
    assert unix_ms(from_unix_ms(milliseconds)) == milliseconds
