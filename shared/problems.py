"""What a caller is told when a request can't be served: RFC 9457 problems, Chinese first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic_core import ErrorDetails

CODES: Final[dict[str, tuple[int, str, bool]]] = {
    "INVALID_REQUEST": (422, "请求内容有误 / The request is not valid", False),
    "MALFORMED_JSON": (400, "请求体不是有效的 JSON / The body is not valid JSON", False),
    "BODY_TOO_LARGE": (413, "请求体过大 / The body is too large", False),
    "UNSUPPORTED_MEDIA_TYPE": (415, "请使用 application/json / Send application/json", False),
    "UNAUTHENTICATED": (401, "请先登录 / Authentication is required", False),
    "FORBIDDEN": (403, "没有权限 / This caller may not do that", False),
    "NOT_FOUND": (404, "找不到该内容 / There is nothing here", False),
    "METHOD_NOT_ALLOWED": (405, "不支持该方法 / The method is not allowed here", False),
    "IDEMPOTENCY_KEY_REUSED": (
        422,
        "该 Idempotency-Key 已用于不同的请求 / This Idempotency-Key belongs to another request",
        False,
    ),
    "LOGIN_REFUSED": (401, "微信登录失败，请重新登录 / WeChat refused the login code", False),
    "TOO_MANY_OPEN_TASKS": (
        429,
        "进行中的任务过多，请稍后再试 / Too many tasks are under way, try again later",
        True,
    ),
    "DAILY_LIMIT_REACHED": (429, "今日生成数量已达上限 / Today's limit of pictures is reached", True),
    "TOO_MANY_STREAMS": (503, "连接过多，请稍后重试 / Too many live connections, try again", True),
    "ALREADY_FINAL": (409, "任务已结束 / The task has already ended", False),
    "NOTHING_TO_RETRY": (409, "没有失败的图片需要重试 / No shot of this task has failed", False),
    "SHOT_NOT_FINISHED": (409, "该图片尚未完成 / This shot is not finished yet", False),
    "UPSTREAM_UNAVAILABLE": (503, "服务暂时不可用，请稍后重试 / Temporarily unavailable, try again", True),
    "INTERNAL": (500, "服务器内部错误，请稍后重试 / Something went wrong on our side, try again", True),
}
"""code → (HTTP status, title, whether the same request may succeed later)."""

_CHINESE: Final[dict[str, str]] = {
    "missing": "缺少该字段",
    "extra_forbidden": "不认识的字段",
    "string_too_long": "文字过长",
    "string_too_short": "文字过短",
    "too_long": "项目过多",
    "too_short": "项目过少",
    "greater_than_equal": "数值过小",
    "less_than_equal": "数值过大",
    "literal_error": "不是允许的取值",
    "string_type": "应为文字",
    "int_type": "应为整数",
    "int_from_float": "应为整数",
    "list_type": "应为数组",
    "dict_type": "应为对象",
    "model_type": "应为对象",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldProblem:
    pointer: str
    message: str


class Problem(Exception):
    def __init__(
        self,
        code: str,
        detail: str | None = None,
        *,
        fields: Sequence[FieldProblem] = (),
        retry_after: int | None = None,
    ) -> None:
        self.code = code
        self.status, self.title, self.retryable = CODES[code]
        self.detail = detail
        self.fields = tuple(fields)
        self.retry_after = retry_after
        super().__init__(f"{code}: {detail or self.title}")

    def to_json(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "type": f"urn:lookbook:problem:{self.code.lower()}",
            "title": self.title,
            "status": self.status,
            "code": self.code,
            "retryable": self.retryable,
        }
        if self.detail:
            body["detail"] = self.detail
        if self.fields:
            body["errors"] = [{"pointer": f.pointer, "message": f.message} for f in self.fields]
        return body


def invalid(errors: Sequence[ErrorDetails]) -> Problem:
    """What pydantic found, with JSON pointers; what was sent is not repeated."""
    fields = [FieldProblem(pointer=pointer(error["loc"]), message=_bilingual(error)) for error in errors[:50]]
    return Problem("INVALID_REQUEST", fields=fields)


def pointer(parts: Sequence[int | str]) -> str:
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def _bilingual(error: ErrorDetails) -> str:
    english = error["msg"].removeprefix("Value error, ")
    if " / " in english:
        return english
    return f"{_CHINESE.get(error['type'], '取值无效')} / {english}"
