"""How much each user has under way and has had drawn today, in Firestore: counted in the Commits that change it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

from google.cloud.firestore import Increment

from shared.adapters.firestore import Document, Version, Write, create, merge, update
from shared.ids import digest

DAY_ZONE: Final = ZoneInfo("Asia/Shanghai")
"""A user's day ends at midnight where the users are."""
_FORGET_AFTER: Final = timedelta(days=90)


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    open_tasks: int = 0
    pictures_today: int = 0
    version: Version | None = None
    """None: the user has no document yet."""


def user_path(user_id: str) -> str:
    return f"users/{digest('user', user_id)}"


def read_use(document: Document | None, *, now: datetime) -> Use:
    if document is None:
        return Use()
    d = document.fields
    today = d.get("day") == _day(now)
    return Use(
        open_tasks=max(0, d.get("openTasks", 0)),
        pictures_today=d.get("pictures", 0) if today else 0,
        version=document.version,
    )


def use_more(user_id: str, use: Use, *, tasks: int, pictures: int, now: datetime) -> Write:
    """Fenced by what was read, so that two requests at once can't both take the last of a limit."""
    fields: dict[str, Any] = {
        "openTasks": use.open_tasks + tasks,
        "day": _day(now),
        "pictures": use.pictures_today + pictures,
        "expireAt": now + _FORGET_AFTER,
    }
    path = user_path(user_id)
    return create(path, fields) if use.version is None else update(path, fields, use.version)


def task_closed(user_id: str, *, now: datetime) -> Write:
    return merge(user_path(user_id), {"openTasks": Increment(-1), "expireAt": now + _FORGET_AFTER})


def seconds_until_tomorrow(now: datetime) -> int:
    local = now.astimezone(DAY_ZONE)
    tomorrow = (local + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
    return int((tomorrow - local).total_seconds()) + 1


def _day(now: datetime) -> str:
    return now.astimezone(DAY_ZONE).date().isoformat()
