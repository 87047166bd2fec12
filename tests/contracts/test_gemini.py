"""The painter against real HTTP answers: every outcome has one meaning (A-211, A-213)."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from localcloud.faults import Faults
from localcloud.http import drop, hang, serve_http
from localcloud.providers.gemini import start_gemini
from localcloud.providers.gemini_engine import KeySpec
from localcloud.providers.sample import sample_photo
from shared.adapters import gemini
from shared.adapters.gemini import GUIDANCE, GeminiPainter, classify_answer
from shared.clock import SystemClock
from shared.errors import (
    ContentPolicyViolation,
    InsufficientQuota,
    InternalError,
    InvalidApiKey,
    InvalidImageFormat,
    InvalidPrompt,
    LookbookError,
    NoImageReturned,
    RateLimitExceeded,
    ServiceUnavailable,
    TimedOut,
    UnknownError,
)
from shared.images import SourcePhoto, normalise, sniff
from shared.payload import read_payload
from tests.contracts.conftest import Handler

KEY = "AIzaSyTheSecretKeyOfThisTest0123456789"
PHOTO = SourcePhoto(data=bytes(range(256)), mimeType="image/jpeg", width=1, height=1, sha256="")


def a_painter(url: str, seconds: float = 5) -> GeminiPainter:
    return GeminiPainter(base_url=url, timeout=timedelta(seconds=seconds))


async def drawn_by(painter: GeminiPainter, payload: dict[str, Any] | None = None) -> bytes:
    return await painter.draw(
        api_key=KEY,
        model="gemini-2.5-flash-image",
        prompt="a red dress",
        sources=[PHOTO],
        aspect_ratio="3:4",
        payload=payload or {},
    )


class Stage:
    """One server and one painter for the whole module (a client takes long to make); the answer changes."""

    def __init__(self) -> None:
        self.handler: Handler = answer_with(500, {})

    async def start(self) -> None:
        async def handle(request: Request) -> Response:
            return await self.handler(request)

        self.server = await serve_http(Starlette(routes=[Route("/{path:path}", handle, methods=["POST"])]))
        self.painter = a_painter(self.server.url)

    async def stop(self) -> None:
        await self.painter.close()
        await self.server.stop()

    async def draw(self, handler: Handler, payload: dict[str, Any] | None = None) -> bytes:
        self.handler = handler
        return await drawn_by(self.painter, payload)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stage() -> AsyncIterator[Stage]:
    one = Stage()
    await one.start()
    yield one
    await one.stop()


def answer_with(status: int, body: Any, headers: dict[str, str] | None = None) -> Handler:
    async def handler(request: Request) -> Response:
        await request.body()
        if isinstance(body, bytes):
            return Response(body, status_code=status, media_type="text/html", headers=headers)
        return JSONResponse(body, status_code=status, headers=headers)

    return handler


def google_error(status: int, name: str, *details: dict[str, Any], message: str = "No.") -> dict[str, Any]:
    return {"error": {"code": status, "message": message, "status": name, "details": list(details)}}


def picture_part(data: bytes, mime: str = "image/png", **more: Any) -> dict[str, Any]:
    return {"inlineData": {"mimeType": mime, "data": base64.b64encode(data).decode()}, **more}


def candidate(*parts: dict[str, Any], finish: str = "STOP") -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": list(parts)}, "finishReason": finish}]}


RETRY = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "38s"}


def quota(quota_id: str, value: str = "10") -> dict[str, Any]:
    return {
        "@type": "type.googleapis.com/google.rpc.QuotaFailure",
        "violations": [{"quotaId": quota_id, "quotaValue": value}],
    }


def info(reason: str) -> dict[str, Any]:
    return {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason}


OUTCOMES: list[tuple[int, Any, type[LookbookError]]] = [
    (429, google_error(429, "RESOURCE_EXHAUSTED", RETRY), RateLimitExceeded),
    (429, google_error(429, "RESOURCE_EXHAUSTED"), RateLimitExceeded),  # without any detail
    (429, b"slow down", RateLimitExceeded),  # a proxy's words
    (429, google_error(429, "RESOURCE_EXHAUSTED", quota("XPerDay", "0")), InsufficientQuota),  # none at all
    (400, google_error(400, "INVALID_ARGUMENT"), InvalidPrompt),
    (400, google_error(400, "INVALID_ARGUMENT", info("API_KEY_INVALID")), InvalidApiKey),
    (
        400,
        google_error(400, "INVALID_ARGUMENT", message="Unable to process input image."),
        InvalidImageFormat,
    ),
    (400, google_error(400, "FAILED_PRECONDITION"), InsufficientQuota),  # no billing in this country
    (401, google_error(401, "UNAUTHENTICATED"), InvalidApiKey),
    (402, google_error(402, "PAYMENT_REQUIRED"), InsufficientQuota),
    (403, google_error(403, "PERMISSION_DENIED"), InvalidApiKey),
    (403, google_error(403, "PERMISSION_DENIED", info("BILLING_DISABLED")), InsufficientQuota),
    (404, google_error(404, "NOT_FOUND"), InvalidPrompt),
    (408, google_error(408, "TIMEOUT"), TimedOut),
    (413, b"<html>too large</html>", InvalidImageFormat),
    (418, {"what": "ever"}, UnknownError),
    (500, google_error(500, "INTERNAL"), InternalError),
    (502, b"<html><h1>Bad Gateway</h1></html>", ServiceUnavailable),
    (503, google_error(503, "UNAVAILABLE"), ServiceUnavailable),
    (504, google_error(504, "DEADLINE_EXCEEDED"), TimedOut),
    (599, b"", InternalError),  # a number nobody has heard of
    (500, [1, 2], InternalError),  # JSON, but no object
    (500, {"error": "text"}, InternalError),  # an object of another shape
    (500, {"error": {"code": 500, "details": ["x", {"reason": 7}]}}, InternalError),
    (200, {}, NoImageReturned),
    (200, {"candidates": []}, NoImageReturned),
    (200, candidate({"text": "Here is your picture!"}), NoImageReturned),
    (200, candidate(picture_part(b"")), NoImageReturned),
    (200, candidate(picture_part(b"%PDF", mime="application/pdf")), NoImageReturned),
    (200, candidate(picture_part(b"sketch", thought=True)), NoImageReturned),
    (200, candidate(picture_part(b"x"), finish="IMAGE_SAFETY"), ContentPolicyViolation),  # refusal wins
    (200, b"<html>hello</html>", UnknownError),
    (200, [1], NoImageReturned),  # the SDK takes it for an empty answer
    (200, {"candidates": "many"}, NoImageReturned),  # likewise
    (200, candidate({"inlineData": {"mimeType": "image/png", "data": "*"}}), UnknownError),  # bad base64
]


@pytest.mark.parametrize(("status", "body", "kind"), OUTCOMES)
async def test_every_answer_has_one_meaning(
    stage: Stage, status: int, body: Any, kind: type[LookbookError]
) -> None:
    with pytest.raises(LookbookError) as caught:
        await stage.draw(answer_with(status, body))
    assert type(caught.value) is kind
    assert KEY not in str(caught.value)


async def test_picture_and_request_bytes_survive_base64_both_ways(stage: Stage) -> None:
    """A-213: the SDK sends URL-safe base64; every byte value is in the photo."""
    seen: list[tuple[dict[str, Any], Any]] = []

    async def handler(request: Request) -> Response:
        seen.append((await request.json(), request.headers))
        return JSONResponse(
            candidate(picture_part(b"sketch", thought=True), {"text": "done"}, picture_part(PHOTO.data))
        )

    assert await stage.draw(handler) == PHOTO.data
    body, headers = seen[0]
    parts = body["contents"][0]["parts"]
    assert [part.get("text") for part in parts] == ["a red dress", GUIDANCE, None]
    assert base64.urlsafe_b64decode(parts[2]["inlineData"]["data"]) == PHOTO.data
    assert headers.getlist("x-goog-api-key") == [KEY]
    assert body["generationConfig"]["responseModalities"] == ["IMAGE"]
    assert body["generationConfig"]["imageConfig"] == {"aspectRatio": "3:4"}
    assert {one["threshold"] for one in body["safetySettings"]} == {"BLOCK_MEDIUM_AND_ABOVE"}
    assert len(body["safetySettings"]) == 4


async def test_payload_of_the_caller_reaches_the_model(stage: Stage) -> None:
    seen: list[dict[str, Any]] = []

    async def handler(request: Request) -> Response:
        seen.append(await request.json())
        return JSONResponse(candidate(picture_part(b"x")))

    payload = {
        "temperature": 0.4,
        "topP": 0.9,
        "topK": 40,
        "seed": 7,
        "imageSize": "2K",
        "systemInstruction": "Only in daylight.",
        "safetySettings": [
            {"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_LOW_AND_ABOVE"},
        ],
    }
    await stage.draw(handler, payload)
    config = seen[0]["generationConfig"]
    assert (config["temperature"], config["topP"], config["topK"], config["seed"]) == (0.4, 0.9, 40, 7)
    assert config["imageConfig"] == {"aspectRatio": "3:4", "imageSize": "2K"}
    assert "Only in daylight." in json.dumps(seen[0]["systemInstruction"])
    thresholds = {one["category"]: one["threshold"] for one in seen[0]["safetySettings"]}
    assert thresholds["HARM_CATEGORY_HARASSMENT"] == "BLOCK_LOW_AND_ABOVE"
    assert thresholds["HARM_CATEGORY_HATE_SPEECH"] == "BLOCK_MEDIUM_AND_ABOVE"


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        ({"guidance_scale": 3}, "apiPayload.guidance_scale is not a setting"),  # another vendor's
        ({"httpOptions": {"headers": {}}}, "apiPayload.httpOptions is not a setting"),  # ours alone
        ({"temperature": 9}, "apiPayload.temperature is not valid"),
        ({"seed": "x"}, "apiPayload.seed is not valid"),
        (
            {"safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}]},
            "apiPayload.safetySettings.0.threshold is not valid",  # no switching the checks off
        ),
    ],
)
def test_unknown_or_unsafe_setting_is_refused_by_name(payload: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidPrompt, match=said):
        read_payload(payload)


async def test_wait_that_google_asks_for_is_kept(stage: Stage) -> None:
    body = google_error(429, "RESOURCE_EXHAUSTED", RETRY, quota("GenerateRequestsPerMinute"))
    with pytest.raises(RateLimitExceeded) as caught:
        await stage.draw(answer_with(429, body))
    assert (caught.value.retry_after, caught.value.per_day) == (timedelta(seconds=38), False)


async def test_daily_quota_is_told_from_the_one_per_minute(stage: Stage) -> None:
    body = google_error(429, "RESOURCE_EXHAUSTED", quota("GenerateRequestsPerDayPerProjectPerModel"))
    with pytest.raises(RateLimitExceeded) as caught:
        await stage.draw(answer_with(429, body))
    assert caught.value.per_day


async def test_retry_after_header_is_kept_when_the_body_says_nothing(stage: Stage) -> None:
    with pytest.raises(ServiceUnavailable) as caught:
        await stage.draw(answer_with(503, b"busy", {"retry-after": "12"}))
    assert caught.value.retry_after == timedelta(seconds=12)


async def test_error_that_quotes_the_key_does_not_carry_it_on(stage: Stage) -> None:
    message = f"Consumer 'api_key:{KEY}' has been suspended."
    with pytest.raises(InvalidApiKey) as caught:
        await stage.draw(answer_with(403, google_error(403, "PERMISSION_DENIED", message=message)))
    error: BaseException | None = caught.value
    while error is not None:
        assert KEY not in repr(error)
        error = error.__cause__ or error.__context__


@pytest.mark.parametrize("reason", list(gemini.BLOCKED))
async def test_blocked_prompt_is_judged_by_its_reason(stage: Stage, reason: str) -> None:
    kind = NoImageReturned if reason == "BLOCKED_REASON_UNSPECIFIED" else ContentPolicyViolation
    with pytest.raises(kind):
        await stage.draw(answer_with(200, {"promptFeedback": {"blockReason": reason}}))


@pytest.mark.parametrize("reason", list(gemini.FINISH))
async def test_missing_picture_is_judged_by_the_finish_reason(stage: Stage, reason: str) -> None:
    with pytest.raises(gemini.FINISH[reason][0], match=reason):
        await stage.draw(answer_with(200, {"candidates": [{"finishReason": reason}]}))


def test_tables_name_every_reason_that_the_sdk_knows() -> None:
    from google.genai import types

    assert set(gemini.FINISH) == {reason.value for reason in types.FinishReason}
    assert set(gemini.BLOCKED) == {reason.value for reason in types.BlockedReason}


def test_reason_of_the_future_is_judged_with_care() -> None:
    assert isinstance(classify_answer("NEW_BLOCK", None), ContentPolicyViolation)
    assert isinstance(classify_answer(None, "NEW_FINISH"), NoImageReturned)


@pytest.mark.filterwarnings("ignore:NEW_FINISH is not a valid FinishReason")
async def test_finish_reason_that_the_sdk_does_not_know_gives_no_image(stage: Stage) -> None:
    with pytest.raises(NoImageReturned):
        await stage.draw(answer_with(200, {"candidates": [{"finishReason": "NEW_FINISH"}]}))


async def test_silent_model_times_out(stage: Stage) -> None:
    async def handler(request: Request) -> Response:
        await request.body()
        return await hang(request)

    stage.handler = handler
    impatient = a_painter(stage.server.url, seconds=0.2)
    with pytest.raises(TimedOut):
        await drawn_by(impatient)
    await impatient.close()


async def test_cut_connection_is_an_internal_error(stage: Stage) -> None:
    async def handler(request: Request) -> Response:
        await request.body()
        return await drop(request)

    with pytest.raises(InternalError):
        await stage.draw(handler)


async def test_model_that_cannot_be_reached_is_unavailable() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        lost = a_painter(f"http://127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(ServiceUnavailable):
            await drawn_by(lost)
        await lost.close()


async def test_failed_call_is_made_once_only(stage: Stage) -> None:
    calls: list[str] = []

    async def handler(request: Request) -> Response:
        calls.append(request.url.path)
        return Response(status_code=503)

    with pytest.raises(ServiceUnavailable):
        await stage.draw(handler)
    assert len(calls) == 1


async def test_embedded_gemini_draws_a_picture_and_refuses_an_unknown_key() -> None:
    source = normalise(sample_photo(), max_pixels=50_000_000, max_edge=512)
    keys = [KeySpec(key=KEY, id="key1")]
    server = await start_gemini(clock=SystemClock(), faults=Faults(), keys=keys, latency=0)
    one = a_painter(server.url)
    try:
        common: dict[str, Any] = {
            "model": "gemini-2.5-flash-image",
            "prompt": "a coat",
            "sources": [source],
            "aspect_ratio": "1:1",
            "payload": {},
        }
        assert sniff(await one.draw(api_key=KEY, **common)).startswith("image/")
        with pytest.raises(InvalidApiKey):
            await one.draw(api_key="AIzaSyNobodyKnowsThisOne", **common)
    finally:
        await one.close()
        await server.stop()
