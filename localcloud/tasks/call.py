"""The request that a task makes: as its creator asked for it, and as its queue's HTTP target changes it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit, urlunsplit

BODY_METHODS = frozenset({"POST", "PUT", "PATCH"})


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcToken:
    service_account: str
    audience: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthToken:
    service_account: str
    scope: str


Token = OidcToken | OAuthToken


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpCall:
    url: str
    method: str = "POST"
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    token: Token | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UriOverride:
    """Parts of a URL that a queue puts in the place of its tasks' own; none: the task's stays."""

    scheme: str | None = None
    host: str | None = None
    port: int | None = None
    """0 takes the port away."""
    path: str | None = None
    query: str | None = None
    only_if_missing: bool = False
    """A part that the task's URL has is left alone."""

    def applied(self, url: str) -> str:
        parts = urlsplit(url)
        host, port, path, query = parts.hostname or "", parts.port, parts.path, parts.query
        scheme = parts.scheme
        if not self.only_if_missing:  # a task's URL always has these two
            scheme = self.scheme or scheme
            host = self.host or host
        if self.port is not None and (port is None or not self.only_if_missing):
            port = self.port or None
        if self.path is not None and (path in ("", "/") or not self.only_if_missing):
            path = self.path
        if self.query is not None and (not query or not self.only_if_missing):
            query = self.query
        netloc = f"[{host}]" if ":" in host else host
        if port is not None:
            netloc = f"{netloc}:{port}"
        if path and not path.startswith("/"):
            path = f"/{path}"
        return urlunsplit((scheme, netloc, path, query, parts.fragment))


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpTarget:
    """What a queue changes in the requests of all its tasks, at the time of dispatch."""

    uri: UriOverride | None = None
    method: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    token: Token | None = None

    def applied(self, call: HttpCall) -> HttpCall:
        method = self.method or call.method
        replaced = {name.lower() for name in self.headers}
        kept = {name: value for name, value in call.headers.items() if name.lower() not in replaced}
        return replace(
            call,
            url=self.uri.applied(call.url) if self.uri else call.url,
            method=method,
            headers={**kept, **self.headers},
            body=call.body if method in BODY_METHODS else b"",
            token=self.token or call.token,
        )
