"""How protobuf's times and durations become Python's, with nonsense refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from google.protobuf import duration_pb2, timestamp_pb2

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


def to_seconds(kind: str, text: str) -> float:
    """A time or a duration, as JSON writes them, in seconds."""
    pb: Any
    if kind == "google.protobuf.Timestamp":
        pb = timestamp_pb2.Timestamp()
    elif kind == "google.protobuf.Duration":
        pb = duration_pb2.Duration()
    else:
        raise InvalidArgument(f"{kind} cannot be compared.")
    try:
        pb.FromJsonString(text)
    except (ValueError, OverflowError) as error:
        raise InvalidArgument(f"{text[:80]!r} is not a valid time or duration.") from error
    return float(pb.seconds + pb.nanos / 1e9)
