"""The OpenAI API on a laptop, as far as a pose director needs it: chat completions that answer with poses.

How many is read from the schema (`minItems`) or from the words ("数量: 9张", "exactly 9"). The fault
operation is `chat.completions`; its words are in `_failure` (statuses) and `_spoiled` (useless answers).
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from localcloud.faults import Fault, Faults
from localcloud.http import ClientGone, HttpServer, drop, fault_routes, hang, serve_http, until_gone
from shared.clock import Clock

OPERATION = "chat.completions"

_BODIES = (
    "standing tall with both hands on hips and feet apart",
    "walking toward the camera in mid-stride, arms swinging lightly",
    "turning to look back over her shoulder",
    "one hand on hip, weight on the back leg",
    "sitting on a high stool, hands resting on the knees",
    "arms crossed loosely, shoulders relaxed",
    "twirling so that the hem flares out",
    "one hand brushing the hair away from the face",
    "leaning against an edge with one knee bent",
    "hands in the pockets, shoulders dropped",
    "raising one arm in a wave",
    "jumping lightly with both arms thrown up",
    "standing straight, arms loose at the sides",
    "both arms folded behind head, elbows wide",
)
_GAZES = (
    "eyes on the lens",
    "chin slightly lifted",
    "gaze drifting off to the left",
    "a soft smile",
    "gaze lowered to the hem",
    "a calm, serious look",
    "laughing, eyes half closed",
    "gaze far to the right",
)
_TOUCHES = (
    "fabric falling naturally",
    "seen at eye level",
    "seen from slightly below",
    "fingers relaxed",
    "the garment's front fully visible",
)


class Message(BaseModel):
    model_config = ConfigDict(extra="ignore")

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[dict[str, Any]] | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "\n".join(str(part.get("text", "")) for part in self.content)
        return self.content or ""


class ResponseFormat(BaseModel):
    model_config = ConfigDict(extra="forbid")

    type: Literal["text", "json_object", "json_schema"] = "text"
    json_schema: dict[str, Any] | None = None

    @property
    def properties(self) -> dict[str, Any]:
        found = ((self.json_schema or {}).get("schema") or {}).get("properties") or {}
        return dict(found)


class ChatRequest(BaseModel):
    model_config = ConfigDict(extra="ignore")

    model: str
    messages: list[Message] = Field(min_length=1)
    response_format: ResponseFormat = Field(default_factory=ResponseFormat)
    stream: bool = False
    n: int = 1

    @property
    def text(self) -> str:
        return "\n".join(message.text for message in self.messages)


class OpenAIError(Exception):
    """A request that ends with an error."""

    def __init__(
        self, status: int, message: str, kind: str, code: str | None, param: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": code}}


def asked_count(request: ChatRequest) -> int:
    for schema in request.response_format.properties.values():
        if isinstance(schema, dict) and isinstance(schema.get("minItems"), int):
            return int(schema["minItems"])
    numbers: list[str] = re.findall(r"数量[:：]\s*(\d+)|exactly\s+(\d+)", request.text, re.IGNORECASE)
    found = [int(number) for pair in numbers for number in pair if number]
    return min(found[-1], 560) if found else 1


def poses(seed: str, count: int) -> list[str]:
    """Different ones, every body before any comes a second time; which come first depends on the seed."""
    turn = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:4], "big")
    rounds = itertools.product(range(len(_TOUCHES)), range(len(_GAZES)), range(len(_BODIES)))
    found = []
    for touch, gaze, body in itertools.islice(rounds, count):
        found.append(
            f"{_BODIES[(body + turn) % len(_BODIES)]}, {_GAZES[(gaze + body + turn) % len(_GAZES)]}, "
            f"{_TOUCHES[(touch + gaze + turn) % len(_TOUCHES)]}"
        )
    return found


class OpenAIApp:
    """The wire."""

    def __init__(self, *, clock: Clock, faults: Faults, api_key: str, latency: float) -> None:
        self._clock = clock
        self._faults = faults
        self._api_key = api_key
        self._latency = latency

    def routes(self) -> list[Route]:
        return [
            *fault_routes(self._faults),
            Route("/v1/chat/completions", self._complete, methods=["POST"]),
            Route("/v1/models", self._models, methods=["GET"]),
        ]

    async def _complete(self, request: Request) -> Response:
        body = await request.body()
        try:
            self._check_key(request)
            fault = await until_gone(request, self._faults.before(OPERATION))
            if fault and fault.error in ("hang", "disconnect"):
                return await (hang if fault.error == "hang" else drop)(request)
            if fault:
                _failure(fault)
            asked = _parse(body)
            await until_gone(request, self._clock.sleep(self._latency))
            return JSONResponse(self._answer(asked, fault))
        except OpenAIError as error:
            headers = {"retry-after": "2"} if error.status == 429 else None
            return JSONResponse(error.body, status_code=error.status, headers=headers)
        except ClientGone:
            return Response(status_code=499)

    def _answer(self, asked: ChatRequest, fault: Fault | None) -> dict[str, Any]:
        count = asked_count(asked)
        name = _array_property(asked.response_format)
        message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None}
        finish = "stop"
        if fault and fault.error == "refusal":
            message["refusal"] = "I'm sorry, I can't help with that."
        elif fault:
            message["content"] = _spoiled(fault.error, poses(asked.text, count), name)
            finish = "length" if fault.error == "length" else "stop"
        else:
            message["content"] = json.dumps({name: poses(asked.text, count)})
        spent, told = len(asked.text) // 4, len(message["content"] or "") // 4
        return {
            "id": "chatcmpl-" + hashlib.sha256(asked.text.encode()).hexdigest()[:29],
            "object": "chat.completion",
            "created": int(self._clock.now().timestamp()),
            "model": asked.model,
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}],
            "usage": {"prompt_tokens": spent, "completion_tokens": told, "total_tokens": spent + told},
            "system_fingerprint": "fp_local",
        }

    async def _models(self, request: Request) -> Response:
        try:
            self._check_key(request)
        except OpenAIError as error:
            return JSONResponse(error.body, status_code=error.status)
        model = {"id": "gpt-4o-mini", "object": "model", "created": 0, "owned_by": "local"}
        return JSONResponse({"object": "list", "data": [model]})

    def _check_key(self, request: Request) -> None:
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not given:
            raise OpenAIError(401, "You didn't provide an API key.", "invalid_request_error", None)
        if given != self._api_key:
            raise _wrong_key()


def _parse(body: bytes) -> ChatRequest:
    try:
        asked = ChatRequest.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise OpenAIError(400, f"{first['msg']}: '{where}'", "invalid_request_error", None, where) from error
    if asked.stream or asked.n != 1:
        what = "stream" if asked.stream else "n"
        raise OpenAIError(501, f"Not in this embedded OpenAI: {what}", "server_error", "unimplemented", what)
    if asked.response_format.type == "json_object" and "json" not in asked.text.lower():
        # The real service refuses this, so that nobody waits for an endless run of spaces.
        raise OpenAIError(
            400,
            "'messages' must contain the word 'json' in some form, to use 'response_format' of type "
            "'json_object'.",
            "invalid_request_error",
            None,
            "messages",
        )
    return asked


def _array_property(wanted: ResponseFormat) -> str:
    if wanted.type != "json_schema":
        return "actions"
    for name, schema in wanted.properties.items():
        if isinstance(schema, dict) and schema.get("type") == "array":
            return name
    raise OpenAIError(
        501, "Not in this embedded OpenAI: a schema without a list", "server_error", "unimplemented"
    )


def _wrong_key() -> OpenAIError:
    return OpenAIError(401, "Incorrect API key provided.", "invalid_request_error", "invalid_api_key")


def _failure(fault: Fault) -> None:
    match fault.error:
        case "429":
            raise OpenAIError(429, "Rate limit reached for requests.", "requests", "rate_limit_exceeded")
        case "insufficient_quota":
            raise OpenAIError(
                429, "You exceeded your current quota.", "insufficient_quota", "insufficient_quota"
            )
        case "401":
            raise _wrong_key()
        case word if word.isdigit() and 400 <= int(word) <= 599:
            raise OpenAIError(int(word), "The server had an error.", "server_error", None)


def _spoiled(how: str, actions: list[str], name: str) -> str:
    match how:
        case "prose":
            lines = (f"{n}. {action}" for n, action in enumerate(actions, 1))
            return "Sure! Here are some ideas:\n" + "\n".join(lines)
        case "bare_array":
            return json.dumps(actions)
        case "too_few":
            return json.dumps({name: actions[: len(actions) // 2]})
        case "too_many":
            return json.dumps({name: [*actions, *(f"{action}, once more" for action in actions)]})
        case "duplicates":
            return json.dumps({name: actions[:1] * len(actions)})
        case "length":
            return json.dumps({name: actions})[:-20]
        case word:
            raise OpenAIError(
                501, f"Not in this embedded OpenAI: fault {word}", "server_error", "unimplemented"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningOpenAI:
    faults: Faults
    server: HttpServer

    @property
    def port(self) -> int:
        return self.server.port

    @property
    def url(self) -> str:
        """Without `/v1`, which an SDK's base URL has."""
        return self.server.url

    async def stop(self) -> None:
        await self.server.stop()


async def start_openai(
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    clock: Clock,
    faults: Faults,
    api_key: str,
    latency: float = 0.2,
) -> RunningOpenAI:
    app = OpenAIApp(clock=clock, faults=faults, api_key=api_key, latency=latency)
    server = await serve_http(Starlette(routes=app.routes()), host, port)
    return RunningOpenAI(faults=faults, server=server)
