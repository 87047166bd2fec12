"""Which protobuf classes the server speaks: the raw ones behind proto-plus.

Reading a Commit through proto-plus costs seven times as much as reading the raw message, so nothing here uses
the wrappers. The raw classes have no static types; `Message` marks where one is meant.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, TypeAlias

from google.cloud.firestore_v1.types import (
    aggregation_result,
    common,
    document,
    firestore,
    query,
    query_profile,
    write,
)

Message: TypeAlias = Any

Empty: Message = import_module("google.protobuf.empty_pb2").Empty
Timestamp: Message = import_module("google.protobuf.timestamp_pb2").Timestamp

Value: Message = document.Value.pb()
Document: Message = document.Document.pb()
Write: Message = write.Write.pb()
WriteResult: Message = write.WriteResult.pb()
FieldTransform: Message = write.DocumentTransform.FieldTransform.pb()
Precondition: Message = common.Precondition.pb()
StructuredQuery: Message = query.StructuredQuery.pb()
ExplainMetrics: Message = query_profile.ExplainMetrics.pb()
AggregationResult: Message = aggregation_result.AggregationResult.pb()


def request_class(method: str) -> Message:
    return getattr(firestore, f"{method}Request").pb()


def response_class(method: str) -> Message:
    return getattr(firestore, f"{method}Response").pb()


def timestamp(micros: int) -> Message:
    seconds, rest = divmod(micros, 1_000_000)
    return Timestamp(seconds=seconds, nanos=rest * 1000)


def micros(stamp: Message) -> int:
    return int(stamp.seconds) * 1_000_000 + int(stamp.nanos) // 1000
