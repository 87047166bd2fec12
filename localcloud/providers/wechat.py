"""WeChat's server API on a laptop: login codes, access tokens, and the files of a CloudBase environment.

Every failure is HTTP 200 with an `errcode`, as on the real service. Any well-formed login code works, once;
the same code always means the same person. Fault operations: `jscode2session`, `stable_token`, `token`,
`batchdownloadfile`, `download`; words: an errcode (`40029`, `-1`), `http_<status>`, `hang`, `disconnect`.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from localcloud.faults import Fault, Faults
from localcloud.http import HttpServer, drop, fault_routes, hang, serve_http
from localcloud.providers.sample import sample_photo
from shared.clock import Clock

TOKEN_LIFE = timedelta(seconds=7200)
_OLD_TOKEN_LIFE = timedelta(minutes=5)
_MOST_FILES = 50

_MESSAGES = {
    -1: "system error",
    40001: "invalid credential, access_token is invalid or not latest",
    40002: "invalid grant_type",
    40013: "invalid appid",
    40029: "invalid code",
    40097: "invalid args",
    40125: "invalid appsecret",
    40163: "code been used",
    40226: "code blocked",
    41008: "missing code",
    42001: "access_token expired",
    45009: "reach max api daily quota limit",
    45011: "api minute-quota reach limit, must slower, retry next minute",
    47001: "data format error",
    -501000: "env not exists",
}


class WeChatError(Exception):
    """A call that ends with an errcode."""

    def __init__(self, errcode: int) -> None:
        super().__init__(_MESSAGES.get(errcode, "error"))
        self.errcode = errcode


class _Body(BaseModel):
    model_config = ConfigDict(extra="ignore")


class TokenRequest(_Body):
    grant_type: str
    appid: str
    secret: str
    force_refresh: bool = False


class WantedFile(_Body):
    fileid: str
    max_age: int = Field(default=7200, ge=1)


class DownloadRequest(_Body):
    env: str
    file_list: list[WantedFile]


@dataclass(slots=True, kw_only=True)
class WeChatEngine:
    """One mini-program and its CloudBase environment."""

    clock: Clock
    appid: str
    secret: str = field(repr=False)
    env: str
    files: dict[str, bytes] = field(default_factory=dict)
    """By file id, `cloud://env.bucket/path`."""
    _used_codes: set[str] = field(default_factory=set)
    _tokens: dict[str, datetime] = field(default_factory=dict)
    """When each access token ends."""
    _stable: str | None = None
    _plain: str | None = None

    def session(self, appid: str, secret: str, code: str, grant_type: str) -> dict[str, Any]:
        self._check_app(appid, secret)
        if grant_type != "authorization_code":
            raise WeChatError(40002)
        if not code:
            raise WeChatError(41008)
        if not re.fullmatch(r"[\w-]{4,128}", code, re.ASCII) or code.startswith("invalid"):
            raise WeChatError(40029)
        if code in self._used_codes:
            raise WeChatError(40163)
        self._used_codes.add(code)
        # The person is in the code, up to its last dash: `alice-1` and `alice-2` are two logins of one.
        person = hashlib.sha256(code.rpartition("-")[0].encode() or code.encode()).hexdigest()
        return {"openid": f"o{person[:27]}", "session_key": secrets.token_hex(12) + "=="}

    def stable_token(self, request: TokenRequest) -> dict[str, Any]:
        """The same one for as long as it lasts; `force_refresh` ends it and begins another."""
        self._check_app(request.appid, request.secret)
        if request.grant_type != "client_credential":
            raise WeChatError(40002)
        now = self.clock.now()
        if self._stable is None or request.force_refresh or self._tokens[self._stable] <= now:
            if self._stable is not None:
                self._tokens.pop(self._stable)
            self._stable = self._new_token()
        return self._shown(self._stable)

    def token(self, appid: str, secret: str, grant_type: str) -> dict[str, Any]:
        """A new one at each call; the one before it goes on for five minutes."""
        self._check_app(appid, secret)
        if grant_type != "client_credential":
            raise WeChatError(40002)
        if self._plain is not None:
            self._tokens[self._plain] = min(self._tokens[self._plain], self.clock.now() + _OLD_TOKEN_LIFE)
        self._plain = self._new_token()
        return self._shown(self._plain)

    def links(self, token: str, request: DownloadRequest, base_url: str) -> dict[str, Any]:
        ends = self._tokens.get(token)
        if ends is None:
            raise WeChatError(40001)
        if ends <= self.clock.now():
            raise WeChatError(42001)
        if request.env != self.env:
            raise WeChatError(-501000)
        if not 1 <= len(request.file_list) <= _MOST_FILES:
            raise WeChatError(40097)
        return {
            "errcode": 0,
            "errmsg": "ok",
            "file_list": [self._link(wanted, base_url) for wanted in request.file_list],
        }

    def file(self, path: str, expires: str) -> bytes | None:
        """The file under a link, if the link still holds; a link without an end is public."""
        if expires and (not expires.isdigit() or self.clock.now().timestamp() > int(expires)):
            raise PermissionError
        return self.files.get(f"cloud://{path}")

    def _link(self, wanted: WantedFile, base_url: str) -> dict[str, Any]:
        if wanted.fileid not in self.files:
            return {
                "fileid": wanted.fileid,
                "download_url": "",
                "status": 1,
                "errmsg": "STORAGE_FILE_NONEXIST",
            }
        ends = int(self.clock.now().timestamp()) + wanted.max_age
        path = quote(wanted.fileid.removeprefix("cloud://"))
        link = f"{base_url}/files/{path}?t={ends}"
        return {"fileid": wanted.fileid, "download_url": link, "status": 0, "errmsg": "ok"}

    def _check_app(self, appid: str, secret: str) -> None:
        if appid != self.appid:
            raise WeChatError(40013)
        if secret != self.secret:
            raise WeChatError(40125)

    def _new_token(self) -> str:
        token = f"{secrets.randbelow(90) + 10}_{secrets.token_urlsafe(60)}"
        self._tokens[token] = self.clock.now() + TOKEN_LIFE
        return token

    def _shown(self, token: str) -> dict[str, Any]:
        left = self._tokens[token] - self.clock.now()
        return {"access_token": token, "expires_in": int(left.total_seconds())}


class WeChatApp:
    """The wire."""

    def __init__(self, engine: WeChatEngine, *, faults: Faults) -> None:
        self._engine = engine
        self._faults = faults

    def routes(self) -> list[Route]:
        return [
            *fault_routes(self._faults),
            Route("/sns/jscode2session", self._guard("jscode2session", self._session), methods=["GET"]),
            Route("/cgi-bin/stable_token", self._guard("stable_token", self._stable_token), methods=["POST"]),
            Route("/cgi-bin/token", self._guard("token", self._token), methods=["GET"]),
            Route("/tcb/batchdownloadfile", self._guard("batchdownloadfile", self._links), methods=["POST"]),
            Route("/files/{path:path}", self._guard("download", self._file), methods=["GET"]),
            Route("/sample.jpg", self._guard("download", self._sample), methods=["GET"]),
        ]

    def _guard(
        self, operation: str, handle: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """The same for every call: faults before and after, errors as errcodes."""

        async def guarded(request: Request) -> Response:
            await request.body()
            if fault := await self._faults.before(operation):
                return await _misbehave(request, fault)
            try:
                answer = await handle(request)
            except WeChatError as error:
                return _errcode(error)
            except ValidationError:
                return _errcode(WeChatError(47001))
            if fault := await self._faults.after(operation):
                return await _misbehave(request, fault)
            return answer

        return guarded

    async def _session(self, request: Request) -> Response:
        query = request.query_params
        return JSONResponse(
            self._engine.session(
                query.get("appid", ""),
                query.get("secret", ""),
                query.get("js_code", ""),
                query.get("grant_type", ""),
            )
        )

    async def _stable_token(self, request: Request) -> Response:
        return JSONResponse(self._engine.stable_token(TokenRequest.model_validate_json(await request.body())))

    async def _token(self, request: Request) -> Response:
        query = request.query_params
        return JSONResponse(
            self._engine.token(query.get("appid", ""), query.get("secret", ""), query.get("grant_type", ""))
        )

    async def _links(self, request: Request) -> Response:
        wanted = DownloadRequest.model_validate_json(await request.body())
        token = request.query_params.get("access_token", "")
        base_url = f"{request.url.scheme}://{request.url.netloc}"
        return JSONResponse(self._engine.links(token, wanted, base_url))

    async def _file(self, request: Request) -> Response:
        try:
            data = self._engine.file(request.path_params["path"], request.query_params.get("t", ""))
        except PermissionError:
            return PlainTextResponse("the link has expired", status_code=403)
        if data is None:
            return PlainTextResponse("no such file", status_code=404)
        return Response(data, media_type=_media_type(data))

    async def _sample(self, _: Request) -> Response:
        return Response(sample_photo(), media_type="image/jpeg")


def _errcode(error: WeChatError) -> Response:
    return JSONResponse({"errcode": error.errcode, "errmsg": f"{error}, rid: {secrets.token_hex(4)}"})


async def _misbehave(request: Request, fault: Fault) -> Response:
    match fault.error:
        case "hang":
            return await hang(request)
        case "disconnect":
            return await drop(request)
        case word if re.fullmatch(r"http_[1-5]\d\d", word):
            return PlainTextResponse("told to fail", status_code=int(word.removeprefix("http_")))
        case word if re.fullmatch(r"-?\d+", word):
            return _errcode(WeChatError(int(word)))
        case word:
            return PlainTextResponse(f"no such fault: {word}", status_code=501)


def _media_type(data: bytes) -> str:
    kinds = {b"\xff\xd8\xff": "image/jpeg", b"\x89PNG": "image/png", b"RIFF": "image/webp"}
    return next((kind for start, kind in kinds.items() if data.startswith(start)), "application/octet-stream")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningWeChat:
    engine: WeChatEngine
    faults: Faults
    server: HttpServer
    sample_file_id: str
    """The sample photo as a file of the environment."""

    @property
    def port(self) -> int:
        return self.server.port

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def files(self) -> dict[str, bytes]:
        return self.engine.files

    @property
    def sample_url(self) -> str:
        return f"{self.url}/sample.jpg"

    async def stop(self) -> None:
        await self.server.stop()


async def start_wechat(
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    clock: Clock,
    faults: Faults,
    appid: str,
    secret: str,
    env: str,
) -> RunningWeChat:
    """Start with one file in the environment: the sample photo."""
    engine = WeChatEngine(clock=clock, appid=appid, secret=secret, env=env)
    sample_file_id = f"cloud://{env}.{env}-1250000000/sample.jpg"
    engine.files[sample_file_id] = sample_photo()
    app = WeChatApp(engine, faults=faults)
    server = await serve_http(Starlette(routes=app.routes()), host, port)
    return RunningWeChat(engine=engine, faults=faults, server=server, sample_file_id=sample_file_id)
