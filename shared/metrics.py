"""The seed's metrics record of a task: how long each part took, in milliseconds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from shared.task import Shot, Task


def marks_of(shots: Sequence[Shot]) -> dict[str, datetime | None]:
    """When the last picture was drawn, and when the last one was stored."""
    drawn = [shot.timings["drawnAt"] for shot in shots if "drawnAt" in shot.timings]
    stored = [shot.timings["storedAt"] for shot in shots if "storedAt" in shot.timings]
    return {
        "imagesGeneratedAt": max(drawn, default=None),
        "uploadCompletedAt": max(stored, default=None),
    }


def task_metrics(task: Task, shots: Sequence[Shot], *, now: datetime) -> dict[str, Any]:
    """A part that never began or never ended is None; the total of a task without a picture ends now."""
    marks = {**task.marks, **marks_of(shots)}
    started, prompted = marks.get("processingStartedAt"), marks.get("promptGeneratedAt")
    drawn, stored = marks["imagesGeneratedAt"], marks["uploadCompletedAt"]
    return {
        "taskId": task.task_id,
        "queueWaitTime": _between(task.created_at, started),
        "promptGenerationTime": _between(started, prompted),
        "imageGenerationTime": _between(prompted, drawn),
        "uploadTime": _between(drawn, stored),
        "totalTime": _between(task.created_at, stored or now),
        "retryCount": sum(sum(shot.retries.values()) for shot in shots),
        "apiKeysUsed": len({key for shot in shots for key in shot.keys_used}),
    }


def _between(start: datetime | None, end: datetime | None) -> int | None:
    return None if start is None or end is None else round((end - start).total_seconds() * 1000)
