"""The embedded Gemini, through google-genai."""

import asyncio
import io
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest
from google import genai
from google.genai import errors, types
from PIL import Image

from localcloud.faults import Faults, Rule
from localcloud.providers.gemini import KeySpec, RunningGemini, start_gemini
from localcloud.providers.sample import sample_photo
from shared.clock import SystemClock

MODEL = "gemini-2.5-flash-image"
KEYS = [
    KeySpec(key="secret-1", id="key1", max_concurrent=2, project="p1"),
    KeySpec(key="secret-2", id="key2", max_concurrent=3, project="p2", per_minute=2),
    KeySpec(key="secret-3", id="key3", max_concurrent=3, project="p2", per_minute=2),
    KeySpec(key="secret-4", id="key4", max_concurrent=3, project="p4", per_day=1),
]


class SetClock(SystemClock):
    """Stands still until moved."""

    def __init__(self) -> None:
        self.time = datetime(2026, 11, 18, 20, 0, tzinfo=UTC)

    def now(self) -> datetime:
        return self.time


class Client:
    def __init__(self, url: str) -> None:
        self._http = httpx2.AsyncClient()
        self._genai = genai.Client(
            api_key="unused",
            http_options=types.HttpOptions(
                base_url=url,
                timeout=10_000,
                httpx_async_client=self._http,
                retry_options=types.HttpRetryOptions(attempts=1),
            ),
        )

    async def draw(
        self,
        prompt: str = "hands on hips",
        *,
        key: str = "secret-1",
        ratio: str = "3:4",
        photo: bytes | None = None,
    ) -> types.GenerateContentResponse:
        part = types.Part.from_bytes(data=photo or sample_photo(), mime_type="image/jpeg")
        return await self._genai.aio.models.generate_content(
            model=MODEL,
            contents=types.Content(role="user", parts=[types.Part.from_text(text=prompt), part]),
            config=types.GenerateContentConfig(
                response_modalities=["IMAGE"],
                image_config=types.ImageConfig(aspect_ratio=ratio),
                http_options=types.HttpOptions(headers={"x-goog-api-key": key}),
            ),
        )

    async def refused(self, **arguments: Any) -> errors.APIError:
        with pytest.raises(errors.APIError) as caught:
            await self.draw(**arguments)
        return caught.value

    async def close(self) -> None:
        await self._genai.aio.aclose()
        self._genai.close()
        await self._http.aclose()


@pytest.fixture
async def gemini() -> AsyncIterator[RunningGemini]:
    running = await start_gemini(clock=SystemClock(), faults=Faults(), keys=KEYS, latency=0)
    yield running
    await running.stop()


@pytest.fixture
async def client(gemini: RunningGemini) -> AsyncIterator[Client]:
    made = Client(gemini.url)
    yield made
    await made.close()


async def until_in_flight(gemini: RunningGemini, calls: int) -> None:
    async with asyncio.timeout(5):
        while gemini.stats()["total"]["concurrency"] != calls:
            await asyncio.sleep(0.005)


def the_picture(answer: types.GenerateContentResponse) -> bytes:
    found = [part.inline_data.data for part in answer.parts or [] if part.inline_data]
    assert len(found) == 1 and found[0]
    return found[0]


def quota_ids(error: errors.APIError) -> list[str]:
    return [
        violation["quotaId"]
        for detail in error.details["error"]["details"]
        for violation in detail.get("violations", ())
    ]


def retry_delay(error: errors.APIError) -> str:
    delays = [detail["retryDelay"] for detail in error.details["error"]["details"] if "retryDelay" in detail]
    return str(delays[0])


@pytest.mark.parametrize(("ratio", "shape"), [("3:4", 0.75), ("1:1", 1.0), ("16:9", 16 / 9)])
async def test_a_picture_has_the_shape_that_was_asked_for(client: Client, ratio: str, shape: float) -> None:
    image = Image.open(io.BytesIO(the_picture(await client.draw(ratio=ratio))))
    image.load()
    assert max(image.size) == 768
    assert image.width / image.height == pytest.approx(shape, rel=0.03)


async def test_pictures_differ_by_prompt_and_repeat_by_it(client: Client) -> None:
    prompts = [f"Model action: pose {n}" for n in range(9)]
    first = [the_picture(await client.draw(prompt)) for prompt in prompts]
    assert len(set(first)) == 9
    assert the_picture(await client.draw(prompts[4])) == first[4]


async def test_an_unknown_key_is_told_apart_by_its_reason(client: Client, gemini: RunningGemini) -> None:
    error = await client.refused(key="nonsense")
    assert (error.code, error.status) == (400, "INVALID_ARGUMENT")
    assert error.details["error"]["details"][0]["reason"] == "API_KEY_INVALID"
    assert gemini.stats()["unknownKey"] == 1


async def test_a_key_can_be_checked_without_drawing(gemini: RunningGemini) -> None:
    async with httpx2.AsyncClient(base_url=gemini.url) as http:
        assert (await http.get("/v1/models", headers={"x-goog-api-key": "secret-1"})).status_code == 200
        assert (await http.get("/v1beta/models", headers={"x-goog-api-key": "no"})).status_code == 400
        assert (await http.get("/v1/models")).status_code == 403
    assert gemini.stats()["total"]["calls"] == 0


async def test_a_source_that_is_no_photo_is_an_invalid_argument(client: Client) -> None:
    error = await client.refused(photo=b"not a photo")
    assert (error.code, error.status) == (400, "INVALID_ARGUMENT")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, 400),  # nothing to do
        ({"contents": []}, 400),
        ({"contents": [{"parts": [{"text": "  "}]}]}, 400),  # no prompt
        ({"contents": [{"parts": [{"text": "x"}]}], "surprise": 1}, 400),  # a name Google doesn't know
        ({"contents": [{"parts": [{"text": "x"}]}], "tools": [{"googleSearch": {}}]}, 501),  # not built
        (
            {
                "contents": [{"parts": [{"text": "x"}]}],
                "generationConfig": {"imageConfig": {"aspectRatio": "7:5"}},
            },
            400,
        ),
        (
            {
                "contents": [
                    {"parts": [{"inlineData": {"mimeType": "image/png", "data": "*"}}, {"text": "x"}]}
                ]
            },
            400,
        ),
    ],
)
async def test_a_malformed_request_is_refused(gemini: RunningGemini, body: dict[str, Any], code: int) -> None:
    async with httpx2.AsyncClient(base_url=gemini.url, headers={"x-goog-api-key": "secret-1"}) as http:
        answer = await http.post(f"/v1beta/models/{MODEL}:generateContent", json=body)
        assert answer.status_code == code
        assert answer.json()["error"]["code"] == code
    assert gemini.stats()["keys"]["key1"]["errors"] == {str(code): 1}


async def test_one_call_too_many_is_refused_and_seen(client: Client, gemini: RunningGemini) -> None:
    gemini.faults.add(Rule(operation="generateContent:key1", error="hang", times=2))
    held = [asyncio.create_task(client.draw()) for _ in range(2)]
    await until_in_flight(gemini, 2)
    error = await client.refused()
    assert (error.code, error.status) == (429, "RESOURCE_EXHAUSTED")
    assert quota_ids(error) == ["GenerateConcurrentRequestsPerKeyPerModel"]
    key = gemini.stats()["keys"]["key1"]
    assert (key["maxConcurrency"], key["maxConcurrent"]) == (3, 2)
    for task in held:
        task.cancel()
    await asyncio.gather(*held, return_exceptions=True)


async def test_a_caller_that_hangs_up_leaves_no_call_in_flight(client: Client, gemini: RunningGemini) -> None:
    async with httpx2.AsyncClient(base_url=gemini.url) as http:
        await http.put("/latency", json={"seconds": 30})
        calls = [asyncio.create_task(client.draw()) for _ in range(2)]
        await until_in_flight(gemini, 2)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await until_in_flight(gemini, 0)
        await http.put("/latency", json={"seconds": 0})
    assert gemini.stats()["keys"]["key1"]["gone"] == 2
    the_picture(await client.draw())


async def test_a_full_key_can_be_used_again_the_moment_an_answer_arrives(
    client: Client, gemini: RunningGemini
) -> None:
    async def worker() -> None:
        for n in range(6):
            await client.draw(f"pose {n}")

    await asyncio.gather(worker(), worker())
    key = gemini.stats()["keys"]["key1"]
    assert (key["calls"], key["ok"], key["errors"], key["maxConcurrency"]) == (12, 12, {}, 2)
    assert key["busySeconds"] > 0
    assert key["firstStart"] < key["lastEnd"]


async def test_stats_begin_anew(client: Client, gemini: RunningGemini) -> None:
    await client.draw()
    async with httpx2.AsyncClient(base_url=gemini.url) as http:
        assert (await http.get("/stats")).json()["total"]["ok"] == 1
        assert (await http.delete("/stats")).status_code == 204
        total = (await http.get("/stats")).json()["total"]
    assert (total["calls"], total["maxConcurrency"], total["busySeconds"]) == (0, 0, 0)


async def test_keys_of_one_project_share_its_quota_per_minute() -> None:
    clock = SetClock()
    gemini = await start_gemini(clock=clock, faults=Faults(), keys=KEYS, latency=0)
    client = Client(gemini.url)
    await client.draw(key="secret-2")
    clock.time += timedelta(seconds=20)
    await client.draw(key="secret-3")
    error = await client.refused(key="secret-2")
    assert quota_ids(error) == ["GenerateRequestsPerMinutePerProjectPerModel"]
    assert retry_delay(error) == "41s"
    clock.time += timedelta(seconds=41)
    await client.draw(key="secret-2")
    await client.close()
    await gemini.stop()


async def test_a_quota_per_day_returns_at_midnight_in_los_angeles() -> None:
    clock = SetClock()
    gemini = await start_gemini(clock=clock, faults=Faults(), keys=KEYS, latency=0)
    client = Client(gemini.url)
    await client.draw(key="secret-4")
    # Midnight in London, but not yet in Los Angeles.
    clock.time = datetime(2026, 11, 19, 7, 59, tzinfo=UTC)
    error = await client.refused(key="secret-4")
    assert quota_ids(error) == ["GenerateRequestsPerDayPerProjectPerModel"]
    clock.time = datetime(2026, 11, 19, 8, 0, tzinfo=UTC)
    await client.draw(key="secret-4")
    await client.close()
    await gemini.stop()


@pytest.mark.parametrize(
    ("word", "code", "status"),
    [
        ("429_minute", 429, "RESOURCE_EXHAUSTED"),
        ("429_day", 429, "RESOURCE_EXHAUSTED"),
        ("400", 400, "INVALID_ARGUMENT"),
        ("400_key", 400, "INVALID_ARGUMENT"),
        ("403", 403, "PERMISSION_DENIED"),
        ("500", 500, "INTERNAL"),
        ("503", 503, "UNAVAILABLE"),
        ("html_502", 502, "Bad Gateway"),
    ],
)
async def test_faults_that_are_errors(
    client: Client, gemini: RunningGemini, word: str, code: int, status: str
) -> None:
    gemini.faults.add(Rule(operation="generateContent:key1", error=word, times=1))
    error = await client.refused()
    assert (error.code, error.status) == (code, status)
    # Only that key, and only once.
    the_picture(await client.draw(key="secret-2"))
    the_picture(await client.draw())


async def test_a_fault_can_set_its_retry_delay(client: Client, gemini: RunningGemini) -> None:
    gemini.faults.add(Rule(operation="*", error="429_day", detail={"retryDelay": "7s"}))
    error = await client.refused()
    assert retry_delay(error) == "7s"
    assert quota_ids(error) == ["GenerateRequestsPerDayPerProjectPerModel"]


async def test_faults_that_answer_without_a_picture(client: Client, gemini: RunningGemini) -> None:
    async def with_fault(word: str) -> types.GenerateContentResponse:
        gemini.faults.replace([Rule(operation="generateContent:*", error=word)])
        answer = await client.draw()
        assert not [part for part in answer.parts or [] if part.inline_data]
        return answer

    assert (await with_fault("no_image")).text
    assert (await with_fault("empty")).candidates is None
    feedback = (await with_fault("safety")).prompt_feedback
    assert feedback and feedback.block_reason == types.BlockedReason.SAFETY
    candidates = (await with_fault("image_safety")).candidates
    assert candidates and candidates[0].finish_reason == types.FinishReason.IMAGE_SAFETY
    candidates = (await with_fault("prohibited")).candidates
    assert candidates and candidates[0].finish_reason == types.FinishReason.PROHIBITED_CONTENT


@pytest.mark.parametrize("word", ["garbage", "truncated"])
async def test_faults_that_spoil_the_picture(client: Client, gemini: RunningGemini, word: str) -> None:
    gemini.faults.add(Rule(operation="*", error=word))
    data = the_picture(await client.draw())
    with pytest.raises(OSError):
        Image.open(io.BytesIO(data)).load()


async def test_a_cut_connection_is_an_error_of_the_network(client: Client, gemini: RunningGemini) -> None:
    gemini.faults.add(Rule(operation="*", error="disconnect", times=1))
    with pytest.raises(httpx2.RemoteProtocolError):
        await client.draw()
    the_picture(await client.draw())
    assert gemini.stats()["total"]["concurrency"] == 0
