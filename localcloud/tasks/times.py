"""How protobuf's times and durations become Python's, with nonsense refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from localcloud.tasks.errors import InvalidArgument


def to_timedelta(pb: Any, field: str) -> timedelta:
    try:
        value: timedelta = pb.ToTimedelta()
        pb.ToJsonString()  # refuses what is out of a Duration's range
    except (ValueError, OverflowError) as error:
        raise InvalidArgument(f"{field} is not a valid duration.") from error
    return value


def to_datetime(pb: Any, field: str) -> datetime:
    try:
        value: datetime = pb.ToDatetime(tzinfo=UTC)
    except (ValueError, OverflowError) as error:
        raise InvalidArgument(f"{field} is not a valid time.") from error
    return value
