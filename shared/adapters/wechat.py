"""What the mini-program's platform tells us: whose a login code is, and where a cloud file can be read."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

import httpx2
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from shared.clock import Clock, SystemClock
from shared.errors import (
    InternalError,
    LookbookError,
    RateLimitExceeded,
    ServiceUnavailable,
    SourceUnavailable,
    Terminal,
    TimedOut,
    UnknownError,
)

_TIMEOUT: Final = timedelta(seconds=10)
_TOKEN_MARGIN: Final = timedelta(minutes=5)
_FILES_PER_CALL: Final = 50
_LINK_SECONDS: Final = 3600
_TOKEN_REFUSED: Final = frozenset({40001, 40014, 42001})
_LOGIN_REFUSED: Final = frozenset({40029, 40163, 40226, 41008})
_TOO_OFTEN: Final = frozenset({45009, 45011})
_BUSY: Final = -1

Shape = TypeVar("Shape", bound=BaseModel)


class LoginRefused(Terminal):
    """The login code is wrong, used or expired."""

    code = "LOGIN_REFUSED"


class _TokenRefused(InternalError):
    """WeChat refused our access token."""


class _Answer(BaseModel):
    model_config = ConfigDict(extra="ignore")

    errcode: int = 0


class _Session(_Answer):
    openid: str = Field(min_length=1)


class _Token(_Answer):
    access_token: str = Field(min_length=1)
    expires_in: int


class _File(BaseModel):
    model_config = ConfigDict(extra="ignore")

    fileid: str
    download_url: str = ""
    status: int = 0


class _Files(_Answer):
    file_list: list[_File]


class WeChat:
    def __init__(
        self,
        *,
        appid: str,
        secret: str,
        env: str,
        base_url: str = "https://api.weixin.qq.com",
        http: httpx2.AsyncClient,
        clock: Clock | None = None,
    ) -> None:
        self._appid = appid
        self._secret = secret
        self._env = env
        self._base_url = base_url.rstrip("/")
        self._http = http
        self._clock = clock or SystemClock()
        self._token: tuple[str, datetime] | None = None
        self._token_lock = asyncio.Lock()

    async def session(self, code: str) -> str:
        """The openid behind a `wx.login` code. The session key that comes with it is not kept."""
        answer = await self._call(
            "GET",
            "/sns/jscode2session",
            params={
                "appid": self._appid,
                "secret": self._secret,
                "js_code": code,
                "grant_type": "authorization_code",
            },
        )
        return _parse(_Session, answer).openid

    async def download_urls(self, file_ids: Sequence[str]) -> dict[str, str]:
        """A readable address for each `cloud://` file; `SourceUnavailable` if one of them has none."""
        links: dict[str, str] = {}
        wanted = list(dict.fromkeys(file_ids))
        for start in range(0, len(wanted), _FILES_PER_CALL):
            links |= await self._some_download_urls(wanted[start : start + _FILES_PER_CALL])
        return links

    async def _some_download_urls(self, file_ids: Sequence[str]) -> dict[str, str]:
        token = await self._access_token()
        try:
            answer = await self._ask_for_links(file_ids, token)
        except _TokenRefused:
            token = await self._access_token(refused=token)
            answer = await self._ask_for_links(file_ids, token)
        found = {one.fileid: one for one in _parse(_Files, answer).file_list}
        for file_id in file_ids:
            if file_id not in found or found[file_id].status != 0 or not found[file_id].download_url:
                raise SourceUnavailable(f"The cloud file {file_id[:200]} does not exist or cannot be read.")
        return {file_id: found[file_id].download_url for file_id in file_ids}

    async def _ask_for_links(self, file_ids: Sequence[str], token: str) -> Any:
        files = [{"fileid": file_id, "max_age": _LINK_SECONDS} for file_id in file_ids]
        return await self._call(
            "POST",
            "/tcb/batchdownloadfile",
            params={"access_token": token},
            body={"env": self._env, "file_list": files},
        )

    async def _access_token(self, *, refused: str | None = None) -> str:
        """The token in use; one call at a time fetches a new one, and the others get what it got."""
        async with self._token_lock:
            if self._token is not None:
                token, good_until = self._token
                if token != refused and self._clock.now() < good_until:
                    return token
            answer = await self._call(
                "POST",
                "/cgi-bin/stable_token",
                body={
                    "grant_type": "client_credential",
                    "appid": self._appid,
                    "secret": self._secret,
                    "force_refresh": refused is not None,
                },
            )
            new = _parse(_Token, answer)
            self._token = (
                new.access_token,
                self._clock.now() + timedelta(seconds=new.expires_in) - _TOKEN_MARGIN,
            )
            return new.access_token

    async def _call(
        self, method: str, path: str, *, params: dict[str, str] | None = None, body: Any = None
    ) -> Any:
        # The addresses hold the secret or the token: what httpx2 raises stays here.
        failure: LookbookError
        try:
            async with asyncio.timeout(_TIMEOUT.total_seconds()):
                response = await self._http.request(
                    method, self._base_url + path, params=params, json=body, follow_redirects=False
                )
                if response.status_code == 200:
                    # WeChat calls its JSON text/plain.
                    answer = response.json()
                    _check_errcode(_parse(_Answer, answer).errcode)
                    return answer
                failure = _classify_status(response.status_code)
        except (TimeoutError, httpx2.TimeoutException):
            failure = TimedOut("WeChat did not answer in time.")
        except httpx2.HTTPError:
            failure = ServiceUnavailable("WeChat could not be reached.")
        except ValueError:
            failure = UnknownError("WeChat's answer could not be understood.")
        raise failure


def _classify_status(status: int) -> LookbookError:
    if status >= 500 or status == 429:
        return ServiceUnavailable(f"WeChat answered {status}.")
    return UnknownError(f"WeChat answered {status}.")


def _check_errcode(errcode: int) -> None:
    if errcode == 0:
        return
    if errcode in _TOKEN_REFUSED:
        raise _TokenRefused
    if errcode in _LOGIN_REFUSED:
        raise LoginRefused(f"The login code is wrong, used or expired ({errcode}).")
    if errcode in _TOO_OFTEN:
        raise RateLimitExceeded(f"WeChat was asked too often ({errcode}).")
    if errcode == _BUSY:
        raise ServiceUnavailable("WeChat is busy.")
    raise InternalError(f"WeChat refused the call ({errcode}).")


def _parse(shape: type[Shape], answer: Any) -> Shape:
    try:
        return shape.model_validate(answer)
    except ValidationError:
        failure = UnknownError("WeChat's answer could not be understood.")
    raise failure
