"""The wire of the entry function: what callers may send, parsed once, and what they are shown."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator
from pydantic.alias_generators import to_camel

from shared.errors import LookbookError
from shared.payload import read_payload
from shared.task import PlanState, Shot, Status, Task

MOST_SHOTS: Final = 500
MOST_SOURCES: Final = 8
AspectRatio = Literal["1:1", "2:3", "3:2", "3:4", "4:3", "9:16", "16:9", "21:9"]
_DEFAULT_COUNT: Final = {"normal": 1, "photo_set": 9}


def _storable(value: str) -> str:
    """Lone surrogates and NULs pass through JSON but not through Firestore."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("含有无效字符 / contains characters that are not valid Unicode") from None
    if "\x00" in value:
        raise ValueError("含有空字符 / contains a NUL character")
    return value


def _source(value: str) -> str:
    parts = _split(value)
    if parts.scheme == "cloud":
        if not parts.netloc or not parts.path.strip("/"):
            raise ValueError("应为 cloud://环境/路径 / must be cloud://environment/path")
    elif parts.scheme not in ("https", "http") or not parts.hostname:
        raise ValueError("应为 https:// 或 cloud:// 地址 / must be an https:// or cloud:// address")
    elif parts.username or parts.password:
        raise ValueError("地址中不能有用户名或密码 / must not contain a user name or password")
    return value


def _split(value: str) -> Any:
    try:
        parts = urlsplit(value)
        _ = parts.port
    except ValueError:
        raise ValueError("不是有效的地址 / is not a valid address") from None
    if any(character.isspace() or ord(character) < 32 for character in value):
        raise ValueError("地址中不能有空格 / must not contain white space")
    return parts


def _callback(value: str) -> str:
    parts = _split(value)
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise ValueError("应为 https:// 地址 / must be an https:// address")
    if parts.username or parts.password:
        raise ValueError("地址中不能有用户名或密码 / must not contain a user name or password")
    return value


def _payload(value: dict[str, Any]) -> dict[str, Any]:
    try:
        read_payload(value)
    except LookbookError as error:
        raise ValueError(f"模型参数无效 / {error.message}") from error
    return value


Text = Annotated[str, AfterValidator(_storable)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=to_camel, validate_by_alias=True)


class ParamsIn(_Body):
    scene: Annotated[Text, Field(max_length=100)] | None = Field(default=None, examples=["商业摄影"])
    style: Annotated[Text, Field(max_length=100)] | None = Field(default=None, examples=["现代简约"])
    count: int | None = Field(default=None, ge=1, le=MOST_SHOTS)
    background: Annotated[Text, Field(max_length=200)] | None = None
    color: Annotated[Text, Field(max_length=100)] | None = None
    aspect_ratio: AspectRatio = "3:4"


class TaskIn(_Body):
    """A request for pictures of a garment."""

    user_id: Annotated[Text, Field(min_length=1, max_length=128)] | None = None
    mode: Literal["normal", "photo_set"] = "normal"
    images: list[
        Annotated[str, Field(max_length=2048), AfterValidator(_storable), AfterValidator(_source)]
    ] = Field(min_length=1, max_length=MOST_SOURCES)
    params: ParamsIn = Field(default_factory=ParamsIn)
    prompt: Text = Field(default="", max_length=2000)
    model: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,100}$")] | None = None
    api_payload: Annotated[dict[str, Any], AfterValidator(_payload)] = Field(default_factory=dict)
    priority: int = Field(default=0, ge=0, le=9)
    callback_url: (
        Annotated[str, Field(max_length=2048), AfterValidator(_storable), AfterValidator(_callback)] | None
    ) = None
    prompt_cache: bool = True
    """False: draw every shot, even one that this user has had drawn before."""

    @field_validator("images")
    @classmethod
    def _distinct(cls, images: list[str]) -> list[str]:
        if len(set(images)) != len(images):
            raise ValueError("图片地址重复 / the same image is given twice")
        return images

    @property
    def count(self) -> int:
        return self.params.count or _DEFAULT_COUNT[self.mode]

    def fingerprint(self) -> str:
        """The same request, however it was spelt, has the same fingerprint."""
        canonical = json.dumps(self.model_dump(mode="json"), sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(canonical.encode()).hexdigest()


class SessionIn(_Body):
    code: Text = Field(min_length=1, max_length=256)


def links(task_id: str) -> dict[str, str]:
    return {"self": f"/tasks/{task_id}", "events": f"/tasks/{task_id}/events"}


def accepted(task_id: str, status: str, total: int) -> dict[str, Any]:
    return {"taskId": task_id, "status": status, "total": total, "links": links(task_id)}


def summary(task: Task) -> dict[str, Any]:
    """A task as a line of a list."""
    return {
        "taskId": task.task_id,
        "status": task.status.value,
        "mode": task.mode,
        "total": task.total,
        "params": task.params.to_document(),
        "createdAt": iso(task.created_at),
        "updatedAt": iso(task.updated_at),
        "links": links(task.task_id),
    }


def show(task: Task, shots: Sequence[Shot]) -> dict[str, Any]:
    """A task with everything its owner may know."""
    counts = {status: sum(shot.status.value == status for shot in shots) for status in _COUNTED}
    completed = [shot for shot in shots if shot.status is Status.COMPLETED and shot.result]
    return summary(task) | {
        "userId": task.user_id,
        "images": list(task.images),
        "prompt": task.prompt,
        "model": task.model,
        "priority": task.priority,
        "prompts": task.prompts or None,
        "posesFrom": task.plan.director,
        "progress": len(completed) / task.total,
        "counts": counts | {"total": task.total},
        "results": [
            {
                "index": shot.index,
                "url": shot.result["url"],
                "width": shot.result["width"],
                "height": shot.result["height"],
                "timestamp": iso(shot.result["timestamp"]),
                "fromCache": shot.result["fromCache"],
            }
            for shot in completed
            if shot.result
        ],
        "errors": [_error(error) for error in task.errors]
        + [
            {"index": shot.index} | _error(error)
            for shot in shots
            if task.plan.state is not PlanState.FAILED
            for error in shot.errors
        ],
        "shots": [_shot(task, shot) for shot in shots],
        "retryCount": task.retry_count,
        "metrics": task.metrics,
        **{name: iso(moment) if moment else None for name, moment in task.marks.items()},
    }


_COUNTED = ("pending", "processing", "completed", "failed", "cancelled")


def _shot(task: Task, shot: Shot) -> dict[str, Any]:
    return {
        "index": shot.index,
        "status": shot.status.value,
        "stage": _stage(task, shot),
        "keyId": shot.claim.key_id if shot.claim else (shot.keys_used[-1] if shot.keys_used else None),
        "attempts": shot.attempts,
        "url": shot.result["url"] if shot.result else None,
        "previous": [result["url"] for result in shot.previous if "url" in result],
        "error": _error(shot.errors[-1]) if shot.errors else None,
    }


def _stage(task: Task, shot: Shot) -> str:
    if shot.status is Status.PENDING:
        return "preparing" if task.plan.state is PlanState.PREPARING else "waiting"
    names = {Status.PROCESSING: "drawing", Status.COMPLETED: "stored"}
    return names.get(shot.status, shot.status.value)


def _error(error: dict[str, Any]) -> dict[str, Any]:
    return error | {"timestamp": iso(error["timestamp"])}


def iso(moment: Any) -> str:
    """ISO 8601 in UTC with milliseconds, as the seed writes times."""
    return str(moment.isoformat(timespec="milliseconds")).replace("+00:00", "Z")
