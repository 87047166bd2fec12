"""The embedded callback receiver. Its messages are signed here from the text of the specification."""

import asyncio
import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest

from localcloud.faults import Faults, Rule
from localcloud.receiver import RunningReceiver, start_receiver
from shared.clock import SystemClock

KEY = b"0123456789abcdef0123456789abcdef"
SECRET = "whsec_" + base64.b64encode(KEY).decode()


@pytest.fixture
async def receiver() -> AsyncIterator[RunningReceiver]:
    running = await start_receiver(clock=SystemClock(), faults=Faults(), secret=SECRET)
    yield running
    await running.stop()


@pytest.fixture
async def http(receiver: RunningReceiver) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=receiver.url) as client:
        yield client


def signed(body: bytes, *, webhook_id: str = "msg_1", key: bytes = KEY, age: int = 0) -> dict[str, str]:
    stamp = str(int(datetime.now(UTC).timestamp()) - age)
    text = f"{webhook_id}.{stamp}.".encode() + body
    signature = base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()).decode()
    return {
        "webhook-id": webhook_id,
        "webhook-timestamp": stamp,
        "webhook-signature": f"v1,bm90aGluZw== v1,{signature}",
    }


async def send(
    receiver: RunningReceiver, http: httpx2.AsyncClient, value: Any, **how: Any
) -> httpx2.Response:
    body = json.dumps(value).encode()
    return await http.post(receiver.callback_url, content=body, headers=signed(body, **how))


async def test_a_signed_callback_is_kept(receiver: RunningReceiver, http: httpx2.AsyncClient) -> None:
    assert (await send(receiver, http, {"taskId": "t1"})).status_code == 200
    (entry,) = (await http.get("/inbox")).json()
    assert (entry["webhookId"], entry["body"], entry["verified"]) == ("msg_1", {"taskId": "t1"}, True)
    assert datetime.fromisoformat(entry["receivedAt"]).tzinfo
    assert [one.body for one in receiver.inbox] == [{"taskId": "t1"}]
    assert (await http.delete("/inbox")).status_code == 204
    assert receiver.inbox == []


@pytest.mark.parametrize("how", [{"key": b"another key"}, {"age": 301}, {"age": -301}])
async def test_a_wrong_or_stale_signature_is_refused(
    receiver: RunningReceiver, http: httpx2.AsyncClient, how: dict[str, Any]
) -> None:
    assert (await send(receiver, http, {}, **how)).status_code == 401
    assert [entry.verified for entry in receiver.inbox] == [False]


async def test_a_changed_body_or_no_signature_is_refused(
    receiver: RunningReceiver, http: httpx2.AsyncClient
) -> None:
    changed = await http.post(receiver.callback_url, content=b"[2]", headers=signed(b"[1]"))
    bare = await http.post(receiver.callback_url, content=b"{}")
    assert (changed.status_code, bare.status_code) == (401, 401)


async def test_the_next_callback_can_be_awaited(receiver: RunningReceiver, http: httpx2.AsyncClient) -> None:
    waiting = asyncio.create_task(receiver.wait(lambda entry: entry.body["status"] == "completed"))
    for status in ("processing", "completed"):
        await send(receiver, http, {"status": status})
    async with asyncio.timeout(5):
        assert (await waiting).body == {"status": "completed"}


async def test_the_stream_shows_what_came_and_what_comes(
    receiver: RunningReceiver, http: httpx2.AsyncClient
) -> None:
    await send(receiver, http, 0)
    seen = []
    async with asyncio.timeout(5), http.stream("GET", "/inbox/stream") as stream:
        async for line in stream.aiter_lines():
            if line.startswith("data:"):
                seen.append(json.loads(line.removeprefix("data:"))["body"])
                if len(seen) == 3:
                    break
                await send(receiver, http, len(seen))
    assert seen == [0, 1, 2]


async def test_faults_before_lose_the_callback_and_faults_after_keep_it(
    receiver: RunningReceiver, http: httpx2.AsyncClient
) -> None:
    receiver.faults.add(Rule(operation="callback", error="500", times=1))
    assert (await send(receiver, http, 1)).status_code == 500
    assert receiver.inbox == []
    receiver.faults.replace([Rule(operation="callback", error="503", phase="after", times=1)])
    assert (await send(receiver, http, 2)).status_code == 503
    assert [entry.body for entry in receiver.inbox] == [2]


async def test_it_can_redirect_hang_and_answer_without_end(
    receiver: RunningReceiver, http: httpx2.AsyncClient
) -> None:
    receiver.faults.replace([Rule(operation="callback", error="redirect")])
    assert (await send(receiver, http, 1)).status_code == 302
    receiver.faults.replace([Rule(operation="callback", error="hang")])
    with pytest.raises(httpx2.ReadTimeout):
        await http.post(receiver.callback_url, content=b"1", timeout=0.1)
    receiver.faults.replace([Rule(operation="callback", error="huge")])
    size = 0
    async with http.stream("POST", receiver.callback_url, content=b"1") as stream:
        async for chunk in stream.aiter_bytes():
            size += len(chunk)
            if size > 5 << 20:
                break
    assert size > 5 << 20
