"""The facts that the system tells of: the seed's envelope, its types, and who wants which."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from shared.clock import from_unix_ms, unix_ms

TASK_CREATED: Final = "task.created"
IMAGE_DOWNLOADED: Final = "image.downloaded"
IMAGE_METADATA_EXTRACTED: Final = "image.metadata_extracted"
IMAGE_ANALYZED: Final = "image.analyzed"
IMAGE_GENERATED: Final = "image.generated"
IMAGE_FAILED: Final = "image.failed"
TASK_COMPLETED: Final = "task.completed"
TASK_FAILED: Final = "task.failed"
TASK_CANCELLED: Final = "task.cancelled"

TYPES: Final = frozenset(
    {
        TASK_CREATED,
        IMAGE_DOWNLOADED,
        IMAGE_METADATA_EXTRACTED,
        IMAGE_ANALYZED,
        IMAGE_GENERATED,
        IMAGE_FAILED,
        TASK_COMPLETED,
        TASK_FAILED,
        TASK_CANCELLED,
    }
)
FINAL_TYPES: Final = frozenset({TASK_COMPLETED, TASK_FAILED, TASK_CANCELLED})
SHOT_TYPES: Final = frozenset({IMAGE_GENERATED, IMAGE_FAILED})

NOTIFICATION: Final = "notification"
ANALYTICS: Final = "analytics"
TAG_INDEXER: Final = "tag-indexer"

WANTED: Final[dict[str, frozenset[str]]] = {
    NOTIFICATION: SHOT_TYPES | FINAL_TYPES,
    ANALYTICS: TYPES,
    TAG_INDEXER: frozenset({IMAGE_ANALYZED, TASK_COMPLETED}),
}
"""Which subscriber asks for which events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    event_id: str
    event_type: str
    task_id: str | None
    trace_id: str
    timestamp: datetime
    source: str
    payload: dict[str, Any] = field(default_factory=dict)

    def envelope(self) -> dict[str, Any]:
        """The seven fields of the seed, exactly."""
        envelope: dict[str, Any] = {
            "eventId": self.event_id,
            "eventType": self.event_type,
            "traceId": self.trace_id,
            "timestamp": unix_ms(self.timestamp),
            "source": self.source,
            "payload": self.payload,
        }
        if self.task_id is not None:
            envelope["taskId"] = self.task_id
        return envelope


def read_envelope(envelope: dict[str, Any]) -> Event:
    return Event(
        event_id=envelope["eventId"],
        event_type=envelope["eventType"],
        task_id=envelope.get("taskId"),
        trace_id=envelope["traceId"],
        timestamp=from_unix_ms(envelope["timestamp"]),
        source=envelope["source"],
        payload=envelope["payload"],
    )


def subscribers_of(event_type: str) -> list[str]:
    return [name for name, wanted in WANTED.items() if event_type in wanted]
