"""The two nouns that everything is about, a task and its shots, and how they look as documents."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, Self

SCHEMA: Final = 1
"""Written on every task, so that a later release knows how to read it."""


class Status(StrEnum):
    PENDING = "pending"
    PROCESSING = "processing"
    COMPLETED = "completed"
    PARTIAL = "partial"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        return self not in (Status.PENDING, Status.PROCESSING)


class PlanState(StrEnum):
    """How far the one-time preparation of a task has come."""

    NONE = "none"
    PREPARING = "preparing"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    scene: str | None = None
    style: str | None = None
    count: int = 1
    background: str | None = None
    color: str | None = None
    aspect_ratio: str = "3:4"

    def to_document(self) -> dict[str, Any]:
        return {
            "scene": self.scene,
            "style": self.style,
            "count": self.count,
            "background": self.background,
            "color": self.color,
            "aspectRatio": self.aspect_ratio,
        }

    @classmethod
    def from_document(cls, d: dict[str, Any]) -> Self:
        return cls(
            scene=d.get("scene"),
            style=d.get("style"),
            count=d.get("count", 1),
            background=d.get("background"),
            color=d.get("color"),
            aspect_ratio=d.get("aspectRatio", "3:4"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """An input photo, as it was prepared for the model."""

    url: str
    sha256: str
    mime_type: str
    width: int
    height: int
    cos_key: str
    analysis: dict[str, Any]

    def to_document(self) -> dict[str, Any]:
        return {
            "url": self.url,
            "sha256": self.sha256,
            "mimeType": self.mime_type,
            "width": self.width,
            "height": self.height,
            "cosKey": self.cos_key,
            "analysis": self.analysis,
        }

    @classmethod
    def from_document(cls, d: dict[str, Any]) -> Self:
        return cls(
            url=d["url"],
            sha256=d["sha256"],
            mime_type=d["mimeType"],
            width=d["width"],
            height=d["height"],
            cos_key=d["cosKey"],
            analysis=d["analysis"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    state: PlanState = PlanState.NONE
    token: str | None = None
    until: datetime | None = None
    attempts: int = 0
    director: str | None = None
    """Who chose the poses: `llm`, `repaired` (the model's answer was mended) or `library` (no model answered)."""

    @classmethod
    def from_document(cls, d: dict[str, Any]) -> Self:
        return cls(
            state=PlanState(d.get("state", "none")),
            token=d.get("token"),
            until=d.get("until"),
            attempts=d.get("attempts", 0),
            director=d.get("director"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    task_id: str
    user_id: str
    mode: str
    images: tuple[str, ...]
    params: Params
    prompt: str
    model: str
    api_payload: dict[str, Any]
    priority: int
    callback_url: str
    status: Status
    total: int
    trace_id: str
    idempotency_key: str | None
    created_at: datetime
    updated_at: datetime
    deadline: datetime
    expire_at: datetime
    plan: Plan = field(default_factory=Plan)
    prompts: dict[str, Any] = field(default_factory=dict)
    sources: tuple[Source, ...] = ()
    errors: tuple[dict[str, Any], ...] = ()
    metrics: dict[str, Any] | None = None
    retry_count: int = 0
    prompt_cache: bool = True
    """Whether a picture that this user had drawn before may be given again."""
    counted: bool = False
    """Whether the user's count of open tasks includes this one."""
    cancelled_at: datetime | None = None
    """Somebody asked for an end; the shots that are not finished by then end as cancelled."""
    marks: dict[str, datetime | None] = field(default_factory=dict)
    """The seed's time marks: processingStartedAt, promptGeneratedAt, imagesGeneratedAt, uploadCompletedAt."""
    finished: dict[str, int] | None = None
    """How many shots ended how, once the task is final."""

    @property
    def is_bulk(self) -> bool:
        """So many shots that they go through a queue of their own and let others pass."""
        return self.total > BULK_SHOTS

    def to_document(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "taskId": self.task_id,
            "userId": self.user_id,
            "mode": self.mode,
            "images": list(self.images),
            "params": self.params.to_document(),
            "prompt": self.prompt,
            "model": self.model,
            "apiPayload": self.api_payload,
            "priority": self.priority,
            "callbackUrl": self.callback_url,
            "status": self.status.value,
            "total": self.total,
            "traceId": self.trace_id,
            "idempotencyKey": self.idempotency_key,
            "createdAt": self.created_at,
            "updatedAt": self.updated_at,
            "deadline": self.deadline,
            "promptCache": self.prompt_cache,
            "counted": self.counted,
            "expireAt": self.expire_at,
            "plan": {"state": self.plan.state.value, "attempts": 0},
            "prompts": self.prompts,
            "sources": [source.to_document() for source in self.sources],
            "errors": list(self.errors),
            "retryCount": self.retry_count,
            "processingStartedAt": None,
            "promptGeneratedAt": None,
            "imagesGeneratedAt": None,
            "uploadCompletedAt": None,
        }

    @classmethod
    def from_document(cls, d: dict[str, Any]) -> Self:
        return cls(
            task_id=d["taskId"],
            user_id=d["userId"],
            mode=d["mode"],
            images=tuple(d["images"]),
            params=Params.from_document(d["params"]),
            prompt=d["prompt"],
            model=d["model"],
            api_payload=d["apiPayload"],
            priority=d["priority"],
            callback_url=d["callbackUrl"],
            status=Status(d["status"]),
            total=d["total"],
            trace_id=d["traceId"],
            idempotency_key=d.get("idempotencyKey"),
            created_at=d["createdAt"],
            updated_at=d["updatedAt"],
            deadline=d["deadline"],
            expire_at=d["expireAt"],
            plan=Plan.from_document(d["plan"]),
            prompts=d.get("prompts", {}),
            sources=tuple(Source.from_document(source) for source in d.get("sources", [])),
            errors=tuple(d.get("errors", [])),
            metrics=d.get("metrics"),
            retry_count=d.get("retryCount", 0),
            prompt_cache=d.get("promptCache", True),
            counted=d.get("counted", False),
            cancelled_at=d.get("cancelledAt"),
            marks={name: d.get(name) for name in MARKS},
            finished=d.get("finished"),
        )


BULK_SHOTS: Final = 20
MARKS: Final = ("processingStartedAt", "promptGeneratedAt", "imagesGeneratedAt", "uploadCompletedAt")


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long things are left alone before somebody takes them to be lost, and kept once they are finished."""

    shot: timedelta = timedelta(seconds=90)
    """A shot that nobody has claimed this long after it was due is woken again by the sweep."""
    event: timedelta = timedelta(minutes=2)
    """An event that nobody has published by then is published by the sweep."""
    task: timedelta = timedelta(minutes=5)
    """A task that has not ended is looked at by the sweep at least this often."""
    preparation: timedelta = timedelta(seconds=90)
    """A preparation that takes longer is taken to be dead, and another process begins again."""
    keep: timedelta = timedelta(days=30)
    """What is finished is deleted after that."""

    def scaled(self, factor: float) -> Patience:
        return replace(
            self,
            shot=self.shot * factor,
            event=self.event * factor,
            task=self.task * factor,
            preparation=self.preparation * factor,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Who is working on a shot, and until when nobody else may."""

    token: str
    until: datetime
    key_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    url: str
    cos_key: str
    sha256: str
    width: int
    height: int
    timestamp: datetime
    from_cache: bool = False

    def to_document(self) -> dict[str, Any]:
        return {
            "url": self.url,
            "cosKey": self.cos_key,
            "sha256": self.sha256,
            "width": self.width,
            "height": self.height,
            "timestamp": self.timestamp,
            "fromCache": self.from_cache,
        }

    def told(self, index: int) -> dict[str, Any]:
        """What an event says of it."""
        return {
            "index": index,
            "url": self.url,
            "width": self.width,
            "height": self.height,
            "fromCache": self.from_cache,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Shot:
    index: int
    status: Status
    prompt: str | None = None
    result: dict[str, Any] | None = None
    errors: tuple[dict[str, Any], ...] = ()
    attempts: int = 0
    retries: dict[str, int] = field(default_factory=dict)
    claim: Claim | None = None
    due_at: datetime | None = None
    """Not to be drawn before."""
    enqueue_at: datetime | None = None
    """When the sweep has to wake the shot if nothing happens before; absent once it is final."""
    stash: str | None = None
    """Where its picture waits for storage to come back."""
    fresh: bool = False
    """Asked for anew: a picture from the cache will not do."""
    keys_used: tuple[str, ...] = ()
    previous: tuple[dict[str, Any], ...] = ()
    """Results that were replaced by asking anew."""
    life: tuple[dict[str, Any], ...] = ()
    """What happened to the shot, step by step, for whoever has to explain it."""
    timings: dict[str, Any] = field(default_factory=dict)

    def to_document(self) -> dict[str, Any]:
        return {
            "index": self.index,
            "status": self.status.value,
            "attempts": self.attempts,
            "retries": dict(self.retries),
            "errors": list(self.errors),
            "keysUsed": list(self.keys_used),
            "dueAt": self.due_at,
            "enqueueAt": self.enqueue_at,
        }

    @classmethod
    def from_document(cls, d: dict[str, Any]) -> Self:
        claim = d.get("claim")
        return cls(
            index=d["index"],
            status=Status(d["status"]),
            prompt=d.get("prompt"),
            result=d.get("result"),
            errors=tuple(d.get("errors", [])),
            attempts=d.get("attempts", 0),
            retries=d.get("retries", {}),
            claim=Claim(token=claim["token"], until=claim["until"], key_id=claim["keyId"]) if claim else None,
            due_at=d.get("dueAt"),
            enqueue_at=d.get("enqueueAt"),
            stash=d.get("stash"),
            fresh=d.get("fresh", False),
            previous=tuple(d.get("previous", [])),
            life=tuple(d.get("life", [])),
            keys_used=tuple(d.get("keysUsed", [])),
            timings=d.get("timings", {}),
        )


def final_status(*, total: int, completed: int, cancelled: int = 0) -> Status:
    """What a task is called once none of its shots is left to do."""
    if completed == total:
        return Status.COMPLETED
    if cancelled:
        return Status.CANCELLED
    return Status.PARTIAL if completed else Status.FAILED
