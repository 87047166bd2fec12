"""The adapters and the embedded cloud understand each other: OpenAI, WeChat, and the callback receiver."""

from __future__ import annotations

import base64
import random
from datetime import timedelta

import httpx2
import pytest

from localcloud.faults import Faults
from localcloud.providers.openai import start_openai
from localcloud.providers.sample import sample_photo
from localcloud.providers.wechat import start_wechat
from localcloud.receiver import start_receiver
from shared.adapters.fetch import PublicFetcher
from shared.adapters.openai import PoseDirector
from shared.adapters.webhook import headers, parse_secret
from shared.adapters.wechat import LoginRefused, WeChat
from shared.clock import SystemClock
from shared.errors import InvalidApiKey, SourceUnavailable
from shared.prompts.director import director_messages, read_actions

CLOCK = SystemClock()


async def test_embedded_director_gives_as_many_poses_as_asked_for() -> None:
    server = await start_openai(clock=CLOCK, faults=Faults(), api_key="sk-local", latency=0)
    messages = director_messages(scene="商业摄影", style="现代简约", count=9)
    director = PoseDirector(api_key="sk-local", base_url=f"{server.url}/v1")
    stranger = PoseDirector(api_key="sk-other", base_url=f"{server.url}/v1")
    try:
        read = read_actions(await director.direct(messages, 9), 9, rng=random.Random(1))
        assert (len(read.actions), read.repaired) == (9, 0)
        with pytest.raises(InvalidApiKey):
            await stranger.direct(messages, 9)
    finally:
        await director.close()
        await stranger.close()
        await server.stop()


async def test_embedded_wechat_logs_in_and_hands_out_a_file_that_can_be_fetched() -> None:
    server = await start_wechat(clock=CLOCK, faults=Faults(), appid="wx1", secret="app-secret", env="env1")
    fetcher = PublicFetcher(private_hosts=frozenset({f"127.0.0.1:{server.port}"}))
    try:
        async with httpx2.AsyncClient(trust_env=False) as http:
            wechat = WeChat(appid="wx1", secret="app-secret", env="env1", base_url=server.url, http=http)
            assert await wechat.session("alice-1") == await wechat.session("alice-2")
            with pytest.raises(LoginRefused):
                await wechat.session("alice-1")
            links = await wechat.download_urls([server.sample_file_id])
            with pytest.raises(SourceUnavailable):
                await wechat.download_urls([server.sample_file_id + ".gone"])
        assert await fetcher.fetch(links[server.sample_file_id]) == sample_photo()
    finally:
        await fetcher.close()
        await server.stop()


async def test_embedded_receiver_accepts_our_signature_and_no_other() -> None:
    secret = "whsec_" + base64.b64encode(b"k" * 32).decode()
    server = await start_receiver(clock=CLOCK, faults=Faults(), secret=secret)
    fetcher = PublicFetcher(private_hosts=frozenset({f"127.0.0.1:{server.port}"}))
    body = b'{"taskId": "task_1"}'
    now = int(CLOCK.now().timestamp())
    try:
        ours = headers(parse_secret(secret), "msg_1", now, body)
        theirs = headers(b"x" * 32, "msg_2", now, body)
        wait = timedelta(seconds=5)
        assert (await fetcher.post(server.callback_url, ours, body, wait))[0] in range(200, 300)
        assert (await fetcher.post(server.callback_url, theirs, body, wait))[0] in (400, 401, 403)
    finally:
        await fetcher.close()
        await server.stop()
