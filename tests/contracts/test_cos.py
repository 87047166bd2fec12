"""The picture store through Tencent's own SDK: against the embedded COS, and against odd answers."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from starlette.requests import Request
from starlette.responses import Response

from localcloud.cos import RunningCos, start_cos
from localcloud.faults import Faults
from localcloud.http import drop
from shared.adapters.cos import CosStore, NoSuchObject
from shared.clock import SystemClock
from shared.errors import InternalError, ServiceUnavailable, TimedOut, UnknownError
from tests.contracts.conftest import Serve

BUCKET = "lookbook-1250000000"
SECRET = "cos-secret"
DATA = bytes(range(256)) * 40


def a_store(domain: str, secret_key: str = SECRET) -> CosStore:
    return CosStore(
        secret_id="AKIDlocal",
        secret_key=secret_key,
        bucket=BUCKET,
        region="ap-guangzhou",
        domain=domain,
        scheme="http",
    )


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def cos() -> AsyncIterator[RunningCos]:
    server = await start_cos(
        clock=SystemClock(), faults=Faults(), bucket=BUCKET, secret_id="AKIDlocal", secret_key=SECRET
    )
    yield server
    await server.stop()


async def test_object_is_kept_and_read_back_by_call_and_by_link(cos: RunningCos) -> None:
    store = a_store(cos.domain)
    key = "tasks/任务 1/0-a+b.webp"
    assert not await store.exists(key)
    await store.put(key, DATA, "image/webp")
    assert await store.exists(key)
    assert await store.get(key) == DATA
    async with httpx2.AsyncClient(trust_env=False) as http:
        answer = await http.get(store.url(key, timedelta(hours=1)))
        assert (answer.status_code, answer.content) == (200, DATA)
        assert answer.headers["content-type"] == "image/webp"
        assert "immutable" in answer.headers["cache-control"]
        unsigned = store.url(key, timedelta(hours=1)).partition("?")[0]
        assert (await http.get(unsigned)).status_code == 403
    await store.close()


async def test_missing_object_is_told_by_its_own_type(cos: RunningCos) -> None:
    store = a_store(cos.domain)
    with pytest.raises(NoSuchObject, match="nothing-here"):
        await store.get("nothing-here")
    await store.close()


async def test_wrong_secret_is_refused_and_not_shown(
    cos: RunningCos, caplog: pytest.LogCaptureFixture
) -> None:
    store = a_store(cos.domain, secret_key="a-wrong-secret")
    with caplog.at_level(logging.DEBUG), pytest.raises(UnknownError, match="403"):
        await store.put("a", DATA, "image/webp")
    assert "a-wrong-secret" not in caplog.text
    assert not logging.getLogger("qcloud_cos").isEnabledFor(logging.INFO)
    await store.close()


async def test_many_uploads_run_at_once(cos: RunningCos) -> None:
    store = a_store(cos.domain)
    keys = [f"many/{index}" for index in range(20)]
    await asyncio.gather(*(store.put(key, key.encode(), "text/plain") for key in keys))
    assert await asyncio.gather(*(store.get(key) for key in keys)) == [key.encode() for key in keys]
    await store.close()


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, UnknownError),
        (403, UnknownError),
        (404, NoSuchObject),
        (408, TimedOut),
        (429, ServiceUnavailable),
        (500, InternalError),
        (503, ServiceUnavailable),
    ],
)
@pytest.mark.parametrize("body", [b"", b"<html>", b"<Error><Code>X</Code></Error>"])
async def test_refusal_is_judged_by_its_status_and_not_repeated(
    serve: Serve, status: int, kind: type[Exception], body: bytes
) -> None:
    calls: list[str] = []

    async def handler(request: Request) -> Response:
        calls.append(request.method)
        return Response(body, status_code=status)

    server = await serve(handler)
    store = a_store(f"127.0.0.1:{server.port}/{BUCKET}")
    with pytest.raises(kind):
        await store.put("a", DATA, "image/webp")
    assert calls == ["PUT"]
    await store.close()


async def test_cut_upload_and_missing_store_are_unavailable(serve: Serve) -> None:
    async def handler(request: Request) -> Response:
        await request.body()
        return await drop(request)

    server = await serve(handler)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        for port in (server.port, taken.getsockname()[1]):
            store = a_store(f"127.0.0.1:{port}/{BUCKET}")
            with pytest.raises(ServiceUnavailable):
                await store.put("a", DATA, "image/webp")
            await store.close()


async def test_cut_download_is_not_taken_for_the_object() -> None:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(cut, "127.0.0.1", 0)
    store = a_store(f"127.0.0.1:{server.sockets[0].getsockname()[1]}/{BUCKET}")
    async with server:
        with pytest.raises(ServiceUnavailable):
            await store.get("a")
    await store.close()


def test_link_of_production_is_on_the_buckets_own_host() -> None:
    store: Any = CosStore(secret_id="i", secret_key="k", bucket=BUCKET, region="ap-guangzhou")
    link = store.url("a.webp", timedelta(minutes=10))
    assert link.startswith(f"https://{BUCKET}.cos.ap-guangzhou.myqcloud.com/a.webp?")
    assert "q-signature=" in link
