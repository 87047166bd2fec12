"""The Gemini API on a laptop: generateContent that draws, checks keys, and keeps Google's limits.

Beside the API: `GET /stats` and `DELETE /stats` (what was called, how much at once), `PUT /latency` (how
long a picture takes) and `/_faults`. Fault operations are `generateContent:<key id>`; the words are in
`_misbehave`.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import random
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from localcloud.faults import Fault, Faults
from localcloud.http import ClientGone, HttpServer, drop, fault_routes, hang, serve_http, until_gone
from localcloud.providers.drawing import Picture, Studio, UnreadablePhoto
from localcloud.providers.gemini_engine import Call, GeminiEngine, KeySpec
from localcloud.providers.gemini_errors import (
    ApiError,
    bad_request,
    exhausted,
    internal,
    key_invalid,
    key_missing,
    overloaded,
    per_day,
    per_minute,
    permission_denied,
    unimplemented,
)
from localcloud.providers.gemini_request import GenerateContent, parse
from shared.clock import Clock

__all__ = ["MODELS", "KeySpec", "Latency", "RunningGemini", "start_gemini"]

MODELS = (
    "gemini-2.5-flash-image",
    "gemini-3-pro-image",
    "gemini-3.1-flash-image",
    "gemini-3.1-flash-lite-image",
    "gemini-2.5-flash",
)

_ERRORS = {
    "400": lambda: ApiError(400, "Request contains an invalid argument."),
    "400_key": key_invalid,
    "403": permission_denied,
    "500": internal,
    "503": overloaded,
}
_BLOCKED: dict[str, dict[str, Any]] = {
    "empty": {},
    "safety": {"promptFeedback": {"blockReason": "SAFETY"}},
    "image_safety": {"candidates": [{"finishReason": "IMAGE_SAFETY", "index": 0}]},
    "prohibited": {
        "candidates": [
            {"content": {"parts": [], "role": "model"}, "finishReason": "PROHIBITED_CONTENT", "index": 0}
        ]
    },
}


class Latency(BaseModel):
    """How long a picture takes, in seconds: `seconds` and up to `jitter` more."""

    model_config = ConfigDict(extra="forbid")

    seconds: float = Field(default=1.0, ge=0, le=3600)
    jitter: float = Field(default=0.0, ge=0, le=3600)


class GeminiApp:
    """The wire."""

    def __init__(
        self, engine: GeminiEngine, studio: Studio, *, clock: Clock, faults: Faults, latency: Latency
    ) -> None:
        self._engine = engine
        self._studio = studio
        self._clock = clock
        self._faults = faults
        self._random = random.Random()
        self.latency = latency

    def routes(self) -> list[Route]:
        return [
            *fault_routes(self._faults),
            Route("/stats", self._stats, methods=["GET"]),
            Route("/stats", self._reset, methods=["DELETE"]),
            Route("/latency", self._set_latency, methods=["GET", "PUT"]),
            Route("/{version}/models", self._models, methods=["GET"]),
            Route("/{version}/models/{name}", self._model, methods=["GET"]),
            Route("/{version}/models/{name}", self._post, methods=["POST"]),
        ]

    async def _post(self, request: Request) -> Response:
        model, _, method = request.path_params["name"].partition(":")
        try:
            _check_version(request)
            if method != "generateContent":
                raise unimplemented(method or request.url.path)
            key = self._key(request)
            with self._engine.call(key) as call:
                return await self._generate(request, call, model)
        except ApiError as error:
            return JSONResponse(error.body(), status_code=error.code)
        except (ClientGone, ClientDisconnect):
            return Response(status_code=499)

    async def _generate(self, request: Request, call: Call, model: str) -> Response:
        body = await request.body()
        self._engine.check_concurrency(call.key, model)
        operation = f"generateContent:{call.key.id}"
        if fault := await until_gone(request, self._faults.before(operation)):
            call.outcome = fault.error
            return await self._misbehave(request, fault, model)
        content = await _read(request, body)
        self._engine.spend(call.key, model)
        picture = await until_gone(request, self._take_time(content, model))
        if fault := await until_gone(request, self._faults.after(operation)):
            call.outcome = fault.error
            return await self._misbehave(request, fault, model)
        call.outcome = "ok"
        return _answer(model, content, picture)

    async def _take_time(self, content: GenerateContent, model: str) -> Picture | str:
        """The drawing is part of the time a picture takes, not on top of it."""
        ready = self._clock.now() + timedelta(
            seconds=self.latency.seconds + self._random.uniform(0, self.latency.jitter)
        )
        picture = await asyncio.to_thread(self._draw, content, model)
        left = (ready - self._clock.now()).total_seconds()
        if left > 0:
            await self._clock.sleep(left)
        return picture

    def _draw(self, content: GenerateContent, model: str) -> Picture | str:
        modalities = content.generation_config.response_modalities
        photos = content.photos
        try:
            if "image" not in model or (modalities is not None and "IMAGE" not in modalities):
                return self._studio.describe(photos)
            return self._studio.draw(
                prompt=content.prompt,
                photos=photos,
                model=model,
                aspect_ratio=content.generation_config.image_config.aspect_ratio or "3:4",
            )
        except UnreadablePhoto as error:
            raise ApiError(
                400, "Unable to process input image. Please retry or report the problem."
            ) from error

    async def _misbehave(self, request: Request, fault: Fault, model: str) -> Response:
        delay = fault.detail.get("retryDelay")
        match fault.error:
            case "429_minute":
                raise exhausted(per_minute(10, model, 38), delay)
            case "429_day":
                raise exhausted(per_day(100, model, 38), delay)
            case "hang":
                return await hang(request)
            case "disconnect":
                return await drop(request)
            case "html_502":
                return HTMLResponse("<html><title>502 Bad Gateway</title><h1>Error 502</h1></html>", 502)
            case "no_image":
                return JSONResponse(
                    _candidate(model, [{"text": "Here is a description instead of a picture."}])
                )
            case "garbage" | "truncated":
                return JSONResponse(_candidate(model, [await self._spoiled(fault.error)]))
            case word if word in _BLOCKED:
                return JSONResponse(
                    {**_BLOCKED[word], **({"modelVersion": model} if word != "empty" else {})}
                )
            case word if word in _ERRORS:
                raise _ERRORS[word]()
            case word if word.isdigit() and 400 <= int(word) <= 599:
                raise ApiError(int(word), "We were told to fail.")
            case word:
                raise unimplemented(f"fault {word}")

    async def _spoiled(self, how: str) -> dict[str, Any]:
        if how == "garbage":
            return _inline(Picture(mime_type="image/png", data=b"this is not a picture" * 20))
        whole = await asyncio.to_thread(
            self._studio.draw, prompt=how, photos=[], model="", aspect_ratio="3:4"
        )
        return _inline(Picture(mime_type=whole.mime_type, data=whole.data[: len(whole.data) // 2]))

    def _key(self, request: Request) -> KeySpec:
        secret = request.headers.get("x-goog-api-key") or request.query_params.get("key")
        if not secret:
            raise key_missing()
        return self._engine.key(secret)

    async def _models(self, request: Request) -> Response:
        try:
            _check_version(request)
            self._key(request)
        except ApiError as error:
            return JSONResponse(error.body(), status_code=error.code)
        return JSONResponse({"models": [_described(name) for name in MODELS]})

    async def _model(self, request: Request) -> Response:
        name = request.path_params["name"]
        try:
            _check_version(request)
            self._key(request)
            if name not in MODELS:
                raise ApiError(404, f"models/{name} is not found for API version v1.")
        except ApiError as error:
            return JSONResponse(error.body(), status_code=error.code)
        return JSONResponse(_described(name))

    async def _stats(self, _: Request) -> Response:
        return JSONResponse(self._engine.stats())

    async def _reset(self, _: Request) -> Response:
        self._engine.reset_stats()
        return Response(status_code=204)

    async def _set_latency(self, request: Request) -> Response:
        if request.method == "PUT":
            try:
                self.latency = Latency.model_validate_json(await request.body())
            except ValidationError as error:
                return JSONResponse(bad_request("latency", str(error)).body(), status_code=400)
        return JSONResponse(self.latency.model_dump())


async def _read(request: Request, body: bytes) -> GenerateContent:
    try:
        value = await request.json() if body else None
    except ValueError as error:
        raise ApiError(400, "Invalid JSON payload received. Unable to parse.") from error
    if not isinstance(value, dict):
        raise bad_request("contents", "Invalid JSON payload received. An object was expected.")
    return parse(value)


def _check_version(request: Request) -> None:
    version = request.path_params["version"]
    if version not in ("v1", "v1beta"):
        raise ApiError(404, f"Unknown API version: {version}")


def _described(name: str) -> dict[str, Any]:
    return {
        "name": f"models/{name}",
        "version": "local",
        "displayName": name,
        "supportedGenerationMethods": ["generateContent"],
    }


def _inline(picture: Picture) -> dict[str, Any]:
    data = base64.b64encode(picture.data).decode()
    return {"inlineData": {"mimeType": picture.mime_type, "data": data}}


def _candidate(model: str, parts: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "candidates": [{"content": {"parts": parts, "role": "model"}, "finishReason": "STOP", "index": 0}],
        "modelVersion": model,
    }


def _answer(model: str, content: GenerateContent, drawn: Picture | str) -> Response:
    parts = [{"text": drawn}] if isinstance(drawn, str) else [_inline(drawn)]
    body = _candidate(model, parts)
    asked = len(content.prompt) // 4 + 258 * len(content.photos)
    # 1290 is what Google bills for one picture.
    told = len(drawn) // 4 if isinstance(drawn, str) else 1290
    body["usageMetadata"] = {
        "promptTokenCount": asked,
        "candidatesTokenCount": told,
        "totalTokenCount": asked + told,
    }
    body["responseId"] = hashlib.sha256(content.prompt.encode()).hexdigest()[:22]
    return JSONResponse(body)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningGemini:
    engine: GeminiEngine
    app: GeminiApp
    faults: Faults
    server: HttpServer

    @property
    def port(self) -> int:
        return self.server.port

    @property
    def url(self) -> str:
        return self.server.url

    def stats(self) -> dict[str, Any]:
        return self.engine.stats()

    async def stop(self) -> None:
        await self.server.stop()


async def start_gemini(
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    clock: Clock,
    faults: Faults,
    keys: Iterable[KeySpec],
    latency: float = 1.0,
    jitter: float = 0.0,
) -> RunningGemini:
    engine = GeminiEngine(keys, clock=clock)
    settings = Latency(seconds=latency, jitter=jitter)
    app = GeminiApp(engine, Studio(), clock=clock, faults=faults, latency=settings)
    server = await serve_http(Starlette(routes=app.routes()), host, port)
    return RunningGemini(engine=engine, app=app, faults=faults, server=server)
