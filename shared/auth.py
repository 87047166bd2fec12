"""Who is calling: mini-program users at the entry, Cloud Tasks and the scheduler everywhere else."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Protocol

import jwt

from shared.clock import Clock
from shared.logs import Log
from shared.problems import Problem

_ISSUERS: Final = ("https://accounts.google.com", "accounts.google.com")
_SESSION_AUDIENCE: Final = "lookbook-session"
_TOLERANCE: Final = timedelta(minutes=5)

log = Log("auth")


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    user_id: str | None
    """None only in AUTH_MODE=none: nobody in particular, who may see everything."""

    def may_see(self, owner: str) -> bool:
        return self.user_id is None or self.user_id == owner


class Gate(Protocol):
    """One way of telling who calls the entry."""

    def identify(self, *, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Caller: ...


class OpenGate:
    """AUTH_MODE=none: whoever the caller says it is. For a laptop only."""

    def identify(self, *, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Caller:
        return Caller(user_id=headers.get("x-user-id") or None)


class SessionGate:
    """AUTH_MODE=wechat: a short-lived token that `POST /session` gave for a `wx.login` code."""

    def __init__(self, *, secret: str, lifetime: timedelta, clock: Clock) -> None:
        self._secret = secret
        self._lifetime = lifetime
        self._clock = clock

    def issue(self, openid: str) -> tuple[str, int]:
        """A token, and for how many seconds it is good."""
        now = self._clock.now()
        claims = {"sub": openid, "aud": _SESSION_AUDIENCE, "iat": now, "exp": now + self._lifetime}
        return jwt.encode(claims, self._secret, algorithm="HS256"), int(self._lifetime.total_seconds())

    def identify(self, *, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Caller:
        token = _bearer(headers)
        try:
            claims = jwt.decode(
                token,
                self._secret,
                algorithms=["HS256"],
                audience=_SESSION_AUDIENCE,
                # The time is compared below, with the clock that everything here goes by.
                options={"require": ["sub", "exp"], "verify_exp": False, "verify_iat": False},
            )
        except jwt.InvalidTokenError:
            raise Problem("UNAUTHENTICATED", "登录已失效 / the session token is not valid") from None
        if claims["exp"] <= self._clock.now().timestamp():
            raise Problem("UNAUTHENTICATED", "登录已过期 / the session has expired")
        return Caller(user_id=str(claims["sub"]))


class RelayGate:
    """AUTH_MODE=relay: a CloudBase function signs the request and names the user.

    `x-relay-openid`, `x-relay-timestamp` (Unix seconds) and `x-relay-signature`, which is `v1,` and the base64 of
    HMAC-SHA256 over method, path with query, openid, timestamp and the SHA-256 of the body, divided by line feeds.
    """

    def __init__(self, *, secret: str, clock: Clock) -> None:
        self._secret = secret.encode()
        self._clock = clock

    def identify(self, *, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Caller:
        openid = headers.get("x-relay-openid", "")
        timestamp = headers.get("x-relay-timestamp", "")
        if not openid or len(openid) > 128 or not timestamp.isascii() or not timestamp.isdigit():
            raise Problem("UNAUTHENTICATED", "缺少签名 / the relay signature is missing")
        expected = relay_signature(self._secret, method, target, openid, timestamp, body)
        if not hmac.compare_digest(expected.encode(), headers.get("x-relay-signature", "").encode()):
            raise Problem("UNAUTHENTICATED", "签名无效 / the relay signature is not valid")
        if abs(self._clock.now().timestamp() - int(timestamp[:15])) > _TOLERANCE.total_seconds():
            raise Problem("UNAUTHENTICATED", "签名已过期 / the relay signature is too old or too new")
        return Caller(user_id=openid)


def relay_signature(secret: bytes, method: str, target: str, openid: str, timestamp: str, body: bytes) -> str:
    text = "\n".join((method.upper(), target, openid, timestamp, hashlib.sha256(body).hexdigest()))
    return "v1," + base64.b64encode(hmac.new(secret, text.encode(), hashlib.sha256).digest()).decode()


class TaskTokens:
    """Accepts only Cloud Tasks and the scheduler: a Google-signed token of the one service account."""

    def __init__(self, *, jwks_url: str, audience: str, service_account: str) -> None:
        self._keys = jwt.PyJWKClient(jwks_url, cache_keys=False, lifespan=600, timeout=10)
        self._audience = audience
        self._service_account = service_account

    async def check(self, headers: Mapping[str, str]) -> None:
        token = _bearer(headers)
        try:
            # Only the first token of a signing key goes out for it; the others find it in memory.
            key = await asyncio.to_thread(self._keys.get_signing_key_from_jwt, token)
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=["RS256"],
                audience=self._audience,
                options={"require": ["iss", "aud", "exp", "email"]},
            )
        except jwt.PyJWKClientConnectionError:
            raise Problem("INTERNAL", "the signing keys cannot be fetched") from None
        except (jwt.InvalidTokenError, jwt.PyJWKClientError) as error:
            log.warning("caller.refused", reason=type(error).__name__)
            raise Problem("UNAUTHENTICATED", "the token is not valid") from None
        if claims["iss"] not in _ISSUERS:
            raise Problem("UNAUTHENTICATED", "the token is not Google's")
        if claims["email"] != self._service_account or claims.get("email_verified") is not True:
            log.warning("caller.refused", reason="other service account")
            raise Problem("FORBIDDEN", "this service account may not call")


def _bearer(headers: Mapping[str, str]) -> str:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Problem("UNAUTHENTICATED")
    return token.strip()
