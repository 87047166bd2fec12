"""The embedded OpenAI, through its SDK."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import openai
import pytest
from openai import AsyncOpenAI
from pydantic import BaseModel

from localcloud.faults import Faults, Rule
from localcloud.providers.openai import RunningOpenAI, start_openai
from shared.clock import SystemClock

WANTED = "请以JSON格式返回。数量: 9张"


class Plan(BaseModel):
    actions: list[str]


@pytest.fixture
async def server() -> AsyncIterator[RunningOpenAI]:
    running = await start_openai(clock=SystemClock(), faults=Faults(), api_key="key", latency=0)
    yield running
    await running.stop()


@pytest.fixture
async def client(server: RunningOpenAI) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(api_key="key", base_url=f"{server.url}/v1", max_retries=0) as made:
        yield made


async def ask(client: AsyncOpenAI, text: str = WANTED, **more: Any) -> Any:
    return await client.chat.completions.create(
        model="gpt-4o-mini",
        messages=[{"role": "user", "content": text}],
        response_format={"type": "json_object"},
        **more,
    )


async def content(client: AsyncOpenAI, text: str = WANTED) -> str:
    return str((await ask(client, text)).choices[0].message.content)


@pytest.mark.parametrize(
    ("text", "count"),
    [(WANTED, 9), ("JSON, exactly 4 poses", 4), ("JSON 数量：500张", 500), ("json please", 1)],
)
async def test_as_many_different_poses_as_were_asked_for(client: AsyncOpenAI, text: str, count: int) -> None:
    actions = json.loads(await content(client, text))["actions"]
    assert len(actions) == len(set(actions)) == count
    assert all(action.isascii() for action in actions)


async def test_structured_output_is_parsed(client: AsyncOpenAI) -> None:
    answer = await client.chat.completions.parse(
        model="gpt-4o-mini", messages=[{"role": "user", "content": "exactly 3"}], response_format=Plan
    )
    plan = answer.choices[0].message.parsed
    assert plan and len(plan.actions) == 3


async def test_a_wrong_key_is_refused(server: RunningOpenAI) -> None:
    async with AsyncOpenAI(api_key="wrong", base_url=f"{server.url}/v1", max_retries=0) as stranger:
        with pytest.raises(openai.AuthenticationError) as caught:
            await ask(stranger)
    assert caught.value.code == "invalid_api_key"


async def test_json_mode_without_the_word_json_is_refused(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError):
        await ask(client, "nine poses")


async def test_what_is_not_built_says_so(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.InternalServerError, match="stream"):
        await ask(client, stream=True)


@pytest.mark.parametrize(
    ("word", "error", "code"),
    [
        ("429", openai.RateLimitError, "rate_limit_exceeded"),
        ("insufficient_quota", openai.RateLimitError, "insufficient_quota"),
        ("401", openai.AuthenticationError, "invalid_api_key"),
        ("500", openai.InternalServerError, None),
    ],
)
async def test_faults_that_are_errors(
    client: AsyncOpenAI,
    server: RunningOpenAI,
    word: str,
    error: type[openai.APIStatusError],
    code: str | None,
) -> None:
    server.faults.add(Rule(operation="chat.completions", error=word, times=1))
    with pytest.raises(error) as caught:
        await ask(client)
    assert caught.value.code == code
    await ask(client)


async def test_a_hanging_answer_times_out(client: AsyncOpenAI, server: RunningOpenAI) -> None:
    server.faults.add(Rule(operation="chat.completions", error="hang"))
    with pytest.raises(openai.APITimeoutError):
        await ask(client, timeout=httpx2.Timeout(0.1))


async def test_faults_that_spoil_the_answer(client: AsyncOpenAI, server: RunningOpenAI) -> None:
    async def with_fault(word: str) -> str:
        server.faults.replace([Rule(operation="chat.completions", error=word)])
        return await content(client)

    assert len(json.loads(await with_fault("bare_array"))) == 9
    assert len(json.loads(await with_fault("too_few"))["actions"]) < 9
    assert len(json.loads(await with_fault("too_many"))["actions"]) > 9
    assert len(set(json.loads(await with_fault("duplicates"))["actions"])) == 1
    for word in ("prose", "length"):
        with pytest.raises(json.JSONDecodeError):
            json.loads(await with_fault(word))


async def test_a_refusal_and_a_cut_answer_are_seen_as_such(
    client: AsyncOpenAI, server: RunningOpenAI
) -> None:
    server.faults.replace([Rule(operation="chat.completions", error="refusal")])
    message = (await ask(client)).choices[0].message
    assert message.refusal and message.content is None
    server.faults.replace([Rule(operation="chat.completions", error="length")])
    assert (await ask(client)).choices[0].finish_reason == "length"
