"""Is this request signed by the holder of the secret? The COS V5 scheme, from the server's side.

A client signs the method, the object's path (without the bucket, since a bucket is a host name on the real
service), chosen parameters and chosen headers, for a span of time. The signature comes in the Authorization
header or, for a presigned URL, in the query.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote

_FIELDS = (
    "q-sign-algorithm",
    "q-ak",
    "q-sign-time",
    "q-key-time",
    "q-header-list",
    "q-url-param-list",
    "q-signature",
)


class Refused(Exception):
    """The request is not let in; `code` and the message are COS's own."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedRequest:
    method: str
    path: str
    """The object's path, decoded, with its leading slash and without the bucket."""
    query: tuple[tuple[str, str], ...]
    headers: Mapping[str, str]
    """Names in lower case."""

    @property
    def parameters(self) -> tuple[tuple[str, str], ...]:
        """The query without the signature."""
        return tuple((name, value) for name, value in self.query if name not in _FIELDS)


def check_signature(request: SignedRequest, *, secret_id: str, secret_key: str, now: datetime) -> None:
    """Returns when the signature is right and in force; raises Refused when not."""
    given = _given(request)
    missing = [field for field in _FIELDS if field not in given]
    if missing or given["q-sign-algorithm"] != "sha1":
        raise Refused("AccessDenied", "Access Denied.")
    if given["q-ak"] != secret_id:
        raise Refused("InvalidAccessKeyId", "The Access Key Id you provided does not exist in our records")
    _check_time(given["q-sign-time"], now)
    _check_time(given["q-key-time"], now)
    if not any(
        hmac.compare_digest(_signature(request, given, secret_key, host), given["q-signature"])
        for host in _host_names(request)
    ):
        raise Refused(
            "SignatureDoesNotMatch",
            "The Signature you specified is invalid. Check your Secret Key and signing method.",
        )


def _given(request: SignedRequest) -> dict[str, str]:
    header = request.headers.get("authorization", "")
    if header:
        pairs: Iterable[tuple[str, str]] = (
            (name, value) for name, _, value in (part.partition("=") for part in header.split("&"))
        )
    else:
        pairs = request.query
    return {name: value for name, value in pairs if name in _FIELDS}


def _check_time(span: str, now: datetime) -> None:
    start, _, end = span.partition(";")
    if not (start.isdigit() and end.isdigit()):
        raise Refused("AccessDenied", "Access Denied.")
    if now.timestamp() > int(end):
        raise Refused("AccessDenied", "Request has expired")
    if now.timestamp() < int(start):
        raise Refused("RequestTimeTooSkewed", "The difference between the request time and now is too large")


def _host_names(request: SignedRequest) -> tuple[str, ...]:
    # The SDK signs the host without its port; COS's other tools sign the Host header as it is sent.
    host = request.headers.get("host", "")
    return (host.rpartition(":")[0] or host, host)


def _signature(request: SignedRequest, given: Mapping[str, str], secret_key: str, host: str) -> str:
    headers = {**request.headers, "host": host}
    parameters = {name.lower(): value for name, value in request.parameters}
    text = "\n".join(
        (
            request.method.lower(),
            request.path,
            _canonical(given["q-url-param-list"], parameters),
            _canonical(given["q-header-list"], headers),
            "",
        )
    )
    to_sign = f"sha1\n{given['q-sign-time']}\n{hashlib.sha1(text.encode()).hexdigest()}\n"  # noqa: S324
    sign_key = _hmac(secret_key, given["q-key-time"])
    return _hmac(sign_key, to_sign)


def _canonical(names: str, values: Mapping[str, str]) -> str:
    return "&".join(
        f"{name}={quote(values.get(name, ''), safe='-_.~')}" for name in sorted(names.split(";")) if name
    )


def _hmac(key: str, text: str) -> str:
    return hmac.new(key.encode(), text.encode(), hashlib.sha1).hexdigest()
