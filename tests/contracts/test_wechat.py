"""WeChat's three calls against real HTTP answers: logins, tokens, cloud files."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from localcloud.http import HttpServer
from shared.adapters.wechat import LoginRefused, WeChat
from shared.errors import (
    InternalError,
    RateLimitExceeded,
    ServiceUnavailable,
    SourceUnavailable,
    Terminal,
    UnknownError,
)
from tests.contracts.conftest import Serve

SECRET = "the-app-secret"
Answer = dict[str, Any]


class HandClock:
    def __init__(self) -> None:
        self.time = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


class Platform:
    """What WeChat would do: hands out token t1, t2, …; only the newest is good."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.tokens = 0
        self.is_stubborn = False
        self.forced: list[bool] = []
        self.sizes: list[int] = []

    async def handle(self, request: Request) -> Response:
        self.calls[request.url.path] += 1
        body = json.loads(await request.body() or b"null")
        return PlainTextResponse(json.dumps(self.answer(request, body)))  # WeChat's own content type

    def answer(self, request: Request, body: Any) -> Answer:
        if request.url.path == "/cgi-bin/stable_token":
            assert (body["appid"], body["secret"]) == ("wx1", SECRET)
            self.forced.append(body["force_refresh"])
            self.tokens += 1
            return {"access_token": f"t{self.tokens}", "expires_in": 7200}
        if request.query_params["access_token"] != f"t{self.tokens}" or self.is_stubborn:
            return {"errcode": 40001, "errmsg": "invalid credential"}
        assert body["env"] == "env1"
        self.sizes.append(len(body["file_list"]))
        files = [self.file(one["fileid"]) for one in body["file_list"]]
        return {"errcode": 0, "errmsg": "ok", "file_list": files}

    def file(self, file_id: str) -> Answer:
        if "missing" in file_id:
            return {"fileid": file_id, "download_url": "", "status": -503003, "errmsg": "no such file"}
        return {"fileid": file_id, "download_url": f"https://files.test/{file_id[8:]}", "status": 0}


Connect = Callable[[HttpServer], WeChat]


@pytest_asyncio.fixture(loop_scope="session")
async def connect() -> AsyncIterator[Connect]:
    async with httpx2.AsyncClient(trust_env=False) as http:

        def make(server: HttpServer) -> WeChat:
            return WeChat(
                appid="wx1", secret=SECRET, env="env1", base_url=server.url, http=http, clock=HandClock()
            )

        yield make


def answering(status: int, body: str) -> Callable[[Request], Awaitable[Response]]:
    async def handler(_: Request) -> Response:
        return PlainTextResponse(body, status_code=status)

    return handler


async def test_login_code_gives_the_openid_and_nothing_is_kept(serve: Serve, connect: Connect) -> None:
    seen: list[dict[str, str]] = []

    async def handler(request: Request) -> Response:
        seen.append(dict(request.query_params))
        return PlainTextResponse('{"openid": "o1", "session_key": "never-kept", "unionid": "u1"}')

    wechat = connect(await serve(handler))
    assert await wechat.session("code1") == "o1"
    assert seen == [
        {"appid": "wx1", "secret": SECRET, "js_code": "code1", "grant_type": "authorization_code"}
    ]
    assert "never-kept" not in repr(vars(wechat))


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (200, '{"errcode": 40029, "errmsg": "invalid code"}', LoginRefused),
        (200, '{"errcode": 40163, "errmsg": "code been used"}', LoginRefused),
        (200, '{"errcode": 40226, "errmsg": "high risk user"}', LoginRefused),
        (200, '{"errcode": 45011, "errmsg": "too often"}', RateLimitExceeded),
        (200, '{"errcode": -1, "errmsg": "busy"}', ServiceUnavailable),
        (200, '{"errcode": 40125, "errmsg": "invalid appsecret"}', InternalError),  # our settings
        (200, '{"errcode": 40001, "errmsg": "invalid credential"}', InternalError),  # likewise
        (200, '{"session_key": "k"}', UnknownError),
        (200, "[]", UnknownError),
        (200, "<html>", UnknownError),
        (500, "", ServiceUnavailable),
        (404, "", UnknownError),
    ],
)
async def test_refused_login_has_one_meaning(
    serve: Serve, connect: Connect, status: int, body: str, kind: type[Exception]
) -> None:
    wechat = connect(await serve(answering(status, body)))
    with pytest.raises(kind) as caught:
        await wechat.session("code1")
    assert SECRET not in str(caught.value)
    assert issubclass(LoginRefused, Terminal)


async def test_cloud_files_get_their_links_in_calls_of_fifty(serve: Serve, connect: Connect) -> None:
    platform = Platform()
    wechat = connect(await serve(platform.handle))
    ids = [f"cloud://env1/{index}.jpg" for index in range(60)]
    links = await wechat.download_urls([*ids, ids[0]])
    assert links == {file_id: f"https://files.test/{file_id[8:]}" for file_id in ids}
    assert platform.sizes == [50, 10]
    assert platform.tokens == 1


async def test_missing_cloud_file_is_unavailable(serve: Serve, connect: Connect) -> None:
    wechat = connect(await serve(Platform().handle))
    with pytest.raises(SourceUnavailable, match="missing"):
        await wechat.download_urls(["cloud://env1/a.jpg", "cloud://env1/missing.jpg"])


async def test_one_token_is_fetched_for_all_who_wait(serve: Serve, connect: Connect) -> None:
    platform = Platform()
    wechat = connect(await serve(platform.handle))
    await asyncio.gather(*(wechat.download_urls([f"cloud://env1/{n}"]) for n in range(10)))
    assert platform.tokens == 1


async def test_token_is_replaced_five_minutes_before_it_ends(serve: Serve) -> None:
    platform, clock = Platform(), HandClock()
    server = await serve(platform.handle)
    async with httpx2.AsyncClient(trust_env=False) as http:
        wechat = WeChat(appid="wx1", secret=SECRET, env="env1", base_url=server.url, http=http, clock=clock)
        await wechat.download_urls(["cloud://env1/a"])
        clock.time += timedelta(seconds=6899)
        await wechat.download_urls(["cloud://env1/a"])
        assert platform.tokens == 1
        clock.time += timedelta(seconds=1)
        await wechat.download_urls(["cloud://env1/a"])
    assert platform.forced == [False, False]


async def test_refused_token_is_replaced_once(serve: Serve, connect: Connect) -> None:
    platform = Platform()
    wechat = connect(await serve(platform.handle))
    await wechat.download_urls(["cloud://env1/a"])
    platform.tokens += 1  # somebody else fetched one, and ours is no longer good
    assert await wechat.download_urls(["cloud://env1/a"]) == {"cloud://env1/a": "https://files.test/env1/a"}
    assert platform.forced == [False, True]


async def test_token_that_is_always_refused_ends_in_an_error(serve: Serve, connect: Connect) -> None:
    platform = Platform()
    platform.is_stubborn = True
    wechat = connect(await serve(platform.handle))
    with pytest.raises(InternalError):
        await wechat.download_urls(["cloud://env1/a"])
    assert platform.calls["/tcb/batchdownloadfile"] == 2
