"""The embedded WeChat, over HTTP as its callers use it."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest

from localcloud.faults import Faults, Rule
from localcloud.providers.sample import sample_photo
from localcloud.providers.wechat import RunningWeChat, start_wechat
from shared.clock import SystemClock

APP = {"appid": "wx1", "secret": "s3cret"}


class SetClock(SystemClock):
    def __init__(self) -> None:
        self.time = datetime(2026, 11, 18, tzinfo=UTC)

    def now(self) -> datetime:
        return self.time


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
async def wechat(clock: SetClock) -> AsyncIterator[RunningWeChat]:
    running = await start_wechat(
        clock=clock, faults=Faults(), env="env1", appid=APP["appid"], secret=APP["secret"]
    )
    yield running
    await running.stop()


@pytest.fixture
async def http(wechat: RunningWeChat) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=wechat.url) as client:
        yield client


async def login(http: httpx2.AsyncClient, code: str, **changed: str) -> Any:
    query = {**APP, "js_code": code, "grant_type": "authorization_code", **changed}
    return (await http.get("/sns/jscode2session", params=query)).json()


async def stable_token(http: httpx2.AsyncClient, **more: Any) -> Any:
    body = {"grant_type": "client_credential", **APP, **more}
    return (await http.post("/cgi-bin/stable_token", json=body)).json()


async def links(http: httpx2.AsyncClient, token: str, *file_ids: str, env: str = "env1") -> Any:
    body = {"env": env, "file_list": [{"fileid": file_id, "max_age": 60} for file_id in file_ids]}
    answer = await http.post("/tcb/batchdownloadfile", params={"access_token": token}, json=body)
    return answer.json()


async def test_two_logins_of_one_person_have_one_openid(http: httpx2.AsyncClient) -> None:
    first, again, other = [await login(http, code) for code in ("alice-1", "alice-2", "bob-1")]
    assert first["openid"] == again["openid"] != other["openid"]
    assert first["session_key"]


@pytest.mark.parametrize(
    ("code", "changed", "errcode"),
    [
        ("", {}, 41008),
        ("invalid-code", {}, 40029),
        ("good-code", {"appid": "wx2"}, 40013),
        ("good-code", {"secret": "wrong"}, 40125),
    ],
)
async def test_a_bad_login_has_its_errcode(
    http: httpx2.AsyncClient, code: str, changed: dict[str, str], errcode: int
) -> None:
    answer = await login(http, code, **changed)
    assert answer["errcode"] == errcode
    assert "openid" not in answer


async def test_a_code_works_once(http: httpx2.AsyncClient) -> None:
    assert "openid" in await login(http, "carol-1")
    assert (await login(http, "carol-1"))["errcode"] == 40163


async def test_the_stable_token_stays_until_it_ends_or_is_renewed(
    http: httpx2.AsyncClient, clock: SetClock
) -> None:
    first = await stable_token(http)
    clock.time += timedelta(seconds=200)
    again = await stable_token(http)
    assert again["access_token"] == first["access_token"]
    assert (first["expires_in"], again["expires_in"]) == (7200, 7000)
    renewed = await stable_token(http, force_refresh=True)
    assert renewed["access_token"] != first["access_token"]
    clock.time += timedelta(seconds=7200)
    assert (await stable_token(http))["access_token"] != renewed["access_token"]


async def test_a_plain_token_replaces_the_one_before_it(
    http: httpx2.AsyncClient, wechat: RunningWeChat, clock: SetClock
) -> None:
    async def token() -> str:
        query = {**APP, "grant_type": "client_credential"}
        return str((await http.get("/cgi-bin/token", params=query)).json()["access_token"])

    old, new = await token(), await token()
    assert (await links(http, old, wechat.sample_file_id))["errcode"] == 0
    clock.time += timedelta(minutes=6)
    assert (await links(http, old, wechat.sample_file_id))["errcode"] == 42001
    assert (await links(http, new, wechat.sample_file_id))["errcode"] == 0


async def test_a_cloud_file_is_read_through_a_link_that_ends(
    http: httpx2.AsyncClient, wechat: RunningWeChat, clock: SetClock
) -> None:
    wechat.files["cloud://env1.bucket/衣服 1.png"] = b"\x89PNG photo"
    token = (await stable_token(http))["access_token"]
    answer = await links(http, token, "cloud://env1.bucket/衣服 1.png", wechat.sample_file_id, "cloud://url1")
    named, sample, missing = answer["file_list"]
    photo = await http.get(named["download_url"])
    assert (photo.content, photo.headers["content-type"]) == (b"\x89PNG photo", "image/png")
    assert (await http.get(sample["download_url"])).content == sample_photo()
    assert missing["status"] != 0 and missing["download_url"] == ""
    clock.time += timedelta(seconds=61)
    assert (await http.get(named["download_url"])).status_code == 403


async def test_files_need_a_token_and_the_right_environment(
    http: httpx2.AsyncClient, wechat: RunningWeChat
) -> None:
    assert (await links(http, "nonsense", wechat.sample_file_id))["errcode"] == 40001
    token = (await stable_token(http))["access_token"]
    assert (await links(http, token, wechat.sample_file_id, env="other"))["errcode"] == -501000
    assert (await links(http, token))["errcode"] == 40097


async def test_the_sample_photo_has_a_plain_address(http: httpx2.AsyncClient, wechat: RunningWeChat) -> None:
    answer = await http.get(wechat.sample_url)
    assert answer.headers["content-type"] == "image/jpeg"
    assert answer.content == sample_photo()


async def test_faults_are_errcodes_or_statuses(http: httpx2.AsyncClient, wechat: RunningWeChat) -> None:
    wechat.faults.replace([Rule(operation="jscode2session", error="45011", times=1)])
    assert (await login(http, "dave-1"))["errcode"] == 45011
    assert "openid" in await login(http, "dave-1")
    wechat.faults.replace([Rule(operation="download", error="http_503")])
    assert (await http.get("/sample.jpg")).status_code == 503
