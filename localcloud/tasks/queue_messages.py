"""What queues look like on the wire, and which of their settings make sense: protobuf in, protobuf out.

It works on the raw protobuf classes: proto-plus costs ten times as much per message.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from google.cloud.tasks_v2 import types

from localcloud.tasks import target_messages
from localcloud.tasks.errors import InvalidArgument, Unimplemented
from localcloud.tasks.queue import Queue, RateLimits, RetryConfig
from localcloud.tasks.times import to_timedelta

QueuePb: Final[Any] = types.Queue.pb()
_ROUTING = "app_engine_routing_override"


def queue_from_pb(pb: Any, *, like: Queue) -> Queue:
    """The settings of `pb`, unset ones at Google's defaults; what a caller can't set stays as in `like`."""
    if pb.HasField(_ROUTING):
        raise Unimplemented(f"Queue.{_ROUTING} (App Engine targets) is not implemented by localcloud.")
    limits = pb.rate_limits
    defaults = RateLimits()
    logging = pb.stackdriver_logging_config if pb.HasField("stackdriver_logging_config") else None
    return replace(
        like,
        rate_limits=RateLimits(
            max_dispatches_per_second=limits.max_dispatches_per_second or defaults.max_dispatches_per_second,
            max_concurrent_dispatches=limits.max_concurrent_dispatches or defaults.max_concurrent_dispatches,
        ),
        retry_config=retry_from_pb(pb.retry_config, base=RetryConfig()),
        log_sampling_ratio=logging.sampling_ratio if logging else None,
        http_target=target_messages.target_from_pb(pb.http_target) if pb.HasField("http_target") else None,
    )


def retry_from_pb(pb: Any, *, base: RetryConfig) -> RetryConfig:
    """`base` with everything that `pb` sets; a bound that was not set gives way to the one that was."""

    def duration(name: str, default: timedelta) -> timedelta:
        return to_timedelta(getattr(pb, name), f"RetryConfig.{name}") if pb.HasField(name) else default

    shortest = duration("min_backoff", base.min_backoff)
    longest = duration("max_backoff", base.max_backoff)
    if not pb.HasField("max_backoff"):
        longest = max(longest, shortest)
    elif not pb.HasField("min_backoff"):
        shortest = min(shortest, longest)
    return RetryConfig(
        max_attempts=pb.max_attempts or base.max_attempts,
        max_retry_duration=duration("max_retry_duration", base.max_retry_duration),
        min_backoff=shortest,
        max_backoff=longest,
        max_doublings=pb.max_doublings or base.max_doublings,
    )


def masked_change(pb: Any, paths: list[str]) -> Callable[[Queue], Queue]:
    """What UpdateQueue does to a queue: all settings, or only those that the mask names."""
    if not paths:
        return lambda queue: queue_from_pb(pb, like=queue)
    for path in paths:
        _check_path(path)

    def change(queue: Queue) -> Queue:
        merged = queue_to_pb(queue)
        for path in paths:
            parts = path.split(".")
            _copy_field(pb, merged, parts[:1] if parts[0] == _ROUTING else parts)
        return queue_from_pb(merged, like=queue)

    return change


def _check_path(path: str) -> None:
    descriptor = QueuePb.DESCRIPTOR
    for part in path.split("."):
        field = descriptor.fields_by_name.get(part) if descriptor is not None else None
        if field is None:
            raise InvalidArgument(f"Queue has no field {path!r} (in update_mask).")
        descriptor = field.message_type


def _copy_field(source: Any, target: Any, path: list[str]) -> None:
    for part in path[:-1]:
        source, target = getattr(source, part), getattr(target, part)
    name = path[-1]
    target.ClearField(name)
    field = source.DESCRIPTOR.fields_by_name[name]
    if field.is_repeated:
        getattr(target, name).extend(getattr(source, name))
    elif not field.has_presence:
        setattr(target, name, getattr(source, name))
    elif source.HasField(name):
        value = getattr(source, name)
        if field.message_type is None:
            setattr(target, name, value)
        else:
            getattr(target, name).CopyFrom(value)


def queue_to_pb(queue: Queue) -> Any:
    pb = QueuePb(name=queue.name, state=int(queue.state))
    limits = pb.rate_limits
    limits.max_dispatches_per_second = queue.rate_limits.max_dispatches_per_second
    limits.max_burst_size = queue.rate_limits.max_burst_size
    limits.max_concurrent_dispatches = queue.rate_limits.max_concurrent_dispatches
    fill_retry(pb.retry_config, queue.retry_config)
    if queue.purge_time:
        pb.purge_time.FromDatetime(queue.purge_time)
    if queue.log_sampling_ratio is not None:
        pb.stackdriver_logging_config.sampling_ratio = queue.log_sampling_ratio
        pb.stackdriver_logging_config.SetInParent()
    if queue.http_target:
        target_messages.fill_target(pb.http_target, queue.http_target)
    return pb


def fill_retry(pb: Any, retry: RetryConfig) -> None:
    pb.max_attempts = retry.max_attempts
    pb.max_doublings = retry.max_doublings
    pb.min_backoff.FromTimedelta(retry.min_backoff)
    pb.max_backoff.FromTimedelta(retry.max_backoff)
    if retry.max_retry_duration:
        pb.max_retry_duration.FromTimedelta(retry.max_retry_duration)
