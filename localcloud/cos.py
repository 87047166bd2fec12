"""Tencent COS on a laptop: one private bucket, kept by moto, behind the signature check of the real
service.

moto speaks S3, which COS is close to; this layer checks the COS signature, turns `x-cos-` into `x-amz-` and
back, and writes errors the way COS does (its SDK reports any other XML as "Unknown"). What is not carried
over answers NotImplemented with its name.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import re
import uuid
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode
from xml.sax.saxutils import escape

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from localcloud.faults import Fault, Faults
from localcloud.http import HttpServer, drop, fault_routes, hang, serve_http
from localcloud.providers.cos_signature import Refused, SignedRequest, check_signature
from shared.clock import Clock

METHODS = ["GET", "PUT", "POST", "DELETE", "HEAD"]

_ERRORS = {
    "AccessDenied": 403,
    "BadDigest": 400,
    "InternalError": 500,
    "InvalidAccessKeyId": 403,
    "NoSuchBucket": 404,
    "NoSuchKey": 404,
    "NotImplemented": 501,
    "RequestTimeTooSkewed": 403,
    "ServiceUnavailable": 503,
    "SignatureDoesNotMatch": 403,
    "SlowDown": 503,
    "TooManyRequests": 429,
}
_CODES = {str(status): code for code, status in _ERRORS.items()} | {
    "403": "AccessDenied",
    "404": "NoSuchKey",
    "503": "ServiceUnavailable",
}
_LISTING = {"prefix", "delimiter", "marker", "max-keys", "encoding-type"}
# moto lets nobody read without some AWS signature; it doesn't check it.
_SOME_AWS_CALLER = (
    "AWS4-HMAC-SHA256 Credential=local/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
)
_MULTIPART = {"uploads", "uploadId", "partNumber"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    status: int
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""


class MotoBucket:
    """A bucket of moto's S3, called in process; by one thread, as moto is not made for more."""

    def __init__(self, name: str) -> None:
        # moto takes most of a second to import; only who starts a bucket pays for it.
        from moto.core.models import DEFAULT_ACCOUNT_ID
        from moto.moto_server.werkzeug_app import create_backend_app
        from moto.s3.models import s3_backends

        self.name = name
        self._app: Any = create_backend_app("s3")
        self._backend = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="cos")
        self._backend.create_bucket(name, "us-east-1")

    async def call(
        self, method: str, key: str, query: str, headers: Iterable[tuple[str, str]], body: bytes
    ) -> Reply:
        path = f"/{self.name}{key}"
        environ: dict[str, Any] = {
            "REQUEST_METHOD": method,
            "SCRIPT_NAME": "",
            "PATH_INFO": path.encode().decode("latin-1"),
            "RAW_URI": quote(path) + (f"?{query}" if query else ""),
            "QUERY_STRING": query,
            "SERVER_NAME": "localhost",
            "SERVER_PORT": "80",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "HTTP_HOST": "localhost",
            "HTTP_AUTHORIZATION": _SOME_AWS_CALLER,
            "CONTENT_LENGTH": str(len(body)),
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "http",
            "wsgi.input": io.BytesIO(body),
            "wsgi.errors": io.StringIO(),
            "wsgi.multithread": False,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
        }
        for name, value in headers:
            wsgi_name = name.upper().replace("-", "_")
            environ[wsgi_name if wsgi_name == "CONTENT_TYPE" else f"HTTP_{wsgi_name}"] = value
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._run, environ)

    def _run(self, environ: dict[str, Any]) -> Reply:
        started: list[tuple[int, list[tuple[str, str]]]] = []

        def start_response(status: str, headers: list[tuple[str, str]], _: object = None) -> None:
            started.append((int(status.split()[0]), headers))

        chunks = self._app(environ, start_response)
        try:
            body = b"".join(chunks)
        finally:
            chunks.close()
        status, headers = started[-1]
        return Reply(status=status, headers=headers, body=body)

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._empty)
        self._thread.shutdown()

    def _empty(self) -> None:
        bucket = self._backend.buckets.pop(self.name)
        for key in bucket.keys.values():
            key.dispose()
        for upload in bucket.multiparts.values():
            upload.dispose()
        from moto.s3.models import s3_backends

        s3_backends.bucket_accounts.pop(self.name, None)


class CosApp:
    """The wire: which operation is it, may it run, and its answer in COS's words."""

    def __init__(
        self, bucket: MotoBucket, *, clock: Clock, faults: Faults, secret_id: str, secret_key: str
    ) -> None:
        self._bucket = bucket
        self._clock = clock
        self._faults = faults
        self._secret_id = secret_id
        self._secret_key = secret_key

    async def handle(self, request: Request) -> Response:
        bucket, _, key = request.scope["path"].removeprefix("/").partition("/")
        key = "/" + key
        signed = SignedRequest(
            method=request.method,
            path=key,
            query=tuple(parse_qsl(request.url.query, keep_blank_values=True)),
            headers={name.lower(): value for name, value in request.headers.items()},
        )
        body = await request.body()
        try:
            if bucket != self._bucket.name:
                raise Refused("NoSuchBucket", "The specified bucket does not exist.")
            check_signature(
                signed, secret_id=self._secret_id, secret_key=self._secret_key, now=self._clock.now()
            )
            _check_digest(signed, body)
            operation = operation_of(signed)
        except Refused as refused:
            return error_answer(request, refused.code, str(refused))
        if fault := await self._faults.before(operation):
            return await _misbehave(request, fault)
        reply = await self._bucket.call(
            request.method, key, urlencode(signed.parameters), _for_moto(signed), body
        )
        if fault := await self._faults.after(operation):
            return await _misbehave(request, fault)
        return _answer(request, reply)


def operation_of(request: SignedRequest) -> str:
    """The name COS gives to this call; Refused (NotImplemented) for one that is not carried over."""
    names = {name for name, _ in request.parameters if not name.startswith("response-")}
    on_object = request.path != "/"
    if on_object and "uploadId" in names:
        verbs = {
            "PUT": "UploadPart",
            "POST": "CompleteMultipartUpload",
            "DELETE": "AbortMultipartUpload",
            "GET": "ListParts",
        }
        unknown = names - _MULTIPART - {"part-number-marker", "max-parts", "encoding-type"}
    elif on_object and "uploads" in names:
        verbs, unknown = {"POST": "InitiateMultipartUpload"}, names - _MULTIPART
    elif on_object:
        copying = "x-cos-copy-source" in request.headers
        verbs = {
            "PUT": "PutObjectCopy" if copying else "PutObject",
            "GET": "GetObject",
            "HEAD": "HeadObject",
            "DELETE": "DeleteObject",
        }
        unknown = names
    elif "delete" in names:
        verbs, unknown = {"POST": "DeleteMultipleObjects"}, names - {"delete"}
    else:
        verbs, unknown = {"GET": "GetBucket", "HEAD": "HeadBucket"}, names - _LISTING
    if unknown or request.method not in verbs:
        what = f"{request.method} {'object' if on_object else 'bucket'}"
        raise Refused(
            "NotImplemented", f"Not in this embedded COS: {what} {', '.join(sorted(unknown))}".strip()
        )
    return verbs[request.method]


def error_answer(request: Request, code: str, message: str, status: int | None = None) -> Response:
    request_id = _request_id()
    xml = (
        "<?xml version='1.0' encoding='utf-8' ?>\n<Error>\n"
        f"\t<Code>{escape(code)}</Code>\n\t<Message>{escape(message)}</Message>\n"
        f"\t<Resource>{escape(request.headers.get('host', '') + request.url.path)}</Resource>\n"
        f"\t<RequestId>{request_id}</RequestId>\n\t<TraceId>{request_id}</TraceId>\n</Error>\n"
    )
    return Response(
        b"" if request.method == "HEAD" else xml,
        status_code=status or _ERRORS.get(code, 400),
        media_type="application/xml",
        headers={"x-cos-request-id": request_id, "x-cos-trace-id": request_id},
    )


def _request_id() -> str:
    # As COS writes them: base64 of something that only Tencent can read.
    return base64.b64encode(uuid.uuid4().hex.encode()).decode()


def _check_digest(request: SignedRequest, body: bytes) -> None:
    promised = request.headers.get("content-md5")
    if promised and promised != base64.b64encode(hashlib.md5(body).digest()).decode():  # noqa: S324
        raise Refused("BadDigest", "The Content-MD5 you specified did not match what we received.")


def _for_moto(request: SignedRequest) -> Iterable[tuple[str, str]]:
    for name, value in request.headers.items():
        if name == "x-cos-copy-source":
            host, _, key = value.partition("/")
            yield "x-amz-copy-source", f"/{host.partition('.')[0]}/{key}"
        elif name.startswith("x-cos-"):
            yield "x-amz-" + name.removeprefix("x-cos-"), value
        elif name not in {"authorization", "host", "content-length", "transfer-encoding", "connection"}:
            yield name, value


async def _misbehave(request: Request, fault: Fault) -> Response:
    if fault.error == "hang":
        return await hang(request)
    if fault.error == "disconnect":
        return await drop(request)
    if fault.error.isdigit():
        code = _CODES.get(fault.error, "InternalError")
        return error_answer(request, code, "We were told to fail.", int(fault.error))
    return error_answer(request, fault.error, "We were told to fail.")


def _answer(request: Request, reply: Reply) -> Response:
    if reply.status >= 400:
        text = reply.body.decode(errors="replace")
        code = re.search(r"<Code>(.*?)</Code>", text)
        message = re.search(r"<Message>(.*?)</Message>", text)
        return error_answer(
            request,
            code[1] if code else _CODES.get(str(reply.status), "InternalError"),
            message[1] if message else "The request failed.",
            reply.status,
        )
    response = Response(reply.body, status_code=reply.status)
    # A HEAD has the length of what a GET would bring, not of its own empty body.
    lengths = [value for name, value in reply.headers if name.lower() == "content-length"]
    if request.method == "HEAD" and lengths:
        response.headers["content-length"] = lengths[0]
    for name, value in reply.headers:
        name = name.lower()
        if name.startswith("x-amz-meta-"):
            response.headers["x-cos-meta-" + name.removeprefix("x-amz-meta-")] = value
        elif not name.startswith(
            ("x-amz", "access-control", "content-length", "date", "server", "connection")
        ):
            response.headers[name] = value
    response.headers["x-cos-request-id"] = _request_id()
    response.headers["server"] = "tencent-cos"
    return response


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningCos:
    bucket: str
    faults: Faults
    server: HttpServer
    store: MotoBucket

    @property
    def port(self) -> int:
        return self.server.port

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def domain(self) -> str:
        """What COS_DOMAIN must be for the SDK to reach this server (with COS_SCHEME=http)."""
        return f"{self.server.host}:{self.server.port}/{self.bucket}"

    async def stop(self) -> None:
        await self.server.stop()
        await self.store.close()


async def start_cos(
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    clock: Clock,
    faults: Faults,
    bucket: str,
    secret_id: str,
    secret_key: str,
) -> RunningCos:
    """Start with an empty bucket of that name (`name-appid`); it goes away with the server."""
    store = await asyncio.to_thread(MotoBucket, bucket)
    app = CosApp(store, clock=clock, faults=faults, secret_id=secret_id, secret_key=secret_key)
    routes = [*fault_routes(faults), Route("/{path:path}", app.handle, methods=METHODS)]
    try:
        server = await serve_http(Starlette(routes=routes), host, port)
    except OSError:
        await store.close()
        raise
    return RunningCos(bucket=bucket, faults=faults, server=server, store=store)
