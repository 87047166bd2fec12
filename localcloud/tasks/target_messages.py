"""What a request to a worker looks like on the wire, a task's or a queue's override, and what is refused."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote, urlsplit

from localcloud.tasks.call import (
    BODY_METHODS,
    HttpCall,
    HttpTarget,
    OAuthToken,
    OidcToken,
    Token,
    UriOverride,
)
from localcloud.tasks.errors import InvalidArgument

_METHODS = {0: "POST", 1: "POST", 2: "GET", 3: "HEAD", 4: "PUT", 5: "DELETE", 6: "PATCH", 7: "OPTIONS"}
_METHOD_NUMBERS = {name: number for number, name in _METHODS.items()}
_SCHEMES = {0: "https", 1: "http", 2: "https"}
_IF_NOT_EXISTS, _ALWAYS = 1, 2
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_REPLACED_HEADERS = re.compile(
    r"host|content-length|user-agent|connection|keep-alive|te|trailer|transfer-encoding|upgrade|expect|proxy-.*"
    r"|x-google-.*|x-appengine-.*|x-cloudtasks-.*",
    re.IGNORECASE,
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_ACCOUNT = re.compile(r"[^@\s]+@[^@\s]+")
_HOST = re.compile(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]")
_LONGEST_URL = 2083
_LARGEST_HEADERS = 80 * 1024
_CLOUD_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_AGENT = {"User-Agent": "Google-Cloud-Tasks"}


def call_from_pb(pb: Any) -> HttpCall:
    method = _method(pb.http_method)
    if pb.body and method not in BODY_METHODS:
        raise InvalidArgument("HttpRequest.body is allowed only if the HTTP method is POST, PUT, or PATCH.")
    url = _checked_url(pb.url)
    headers = _checked_headers(pb.headers.items(), "HttpRequest.headers") if pb.headers else {}
    return HttpCall(
        url=url,
        method=method,
        headers={**headers, **_AGENT},
        body=pb.body,
        token=_token(pb, "HttpRequest", default_audience=url, default_scope=_CLOUD_SCOPE),
    )


def fill_call(pb: Any, call: HttpCall, *, with_body: bool) -> None:
    pb.url = call.url
    pb.http_method = _METHOD_NUMBERS[call.method]
    for name, value in call.headers.items():
        if name.lower() != "authorization":  # no view shows a token, not even one that the caller brought
            pb.headers[name] = value
    if with_body:
        pb.body = call.body
    _fill_token(pb, call.token)


def target_from_pb(pb: Any) -> HttpTarget:
    headers = ((override.header.key, override.header.value) for override in pb.header_overrides)
    return HttpTarget(
        uri=_uri_override(pb.uri_override) if pb.HasField("uri_override") else None,
        method=_method(pb.http_method) if pb.http_method else None,
        headers=_checked_headers(headers, "HttpTarget.headerOverrides"),
        # A queue's token has no task's URL to take its audience from.
        token=_token(pb, "HttpTarget", default_audience="", default_scope=""),
    )


def fill_target(pb: Any, target: HttpTarget) -> None:
    pb.SetInParent()
    if target.uri:
        _fill_uri(pb.uri_override, target.uri)
    if target.method:
        pb.http_method = _METHOD_NUMBERS[target.method]
    for name, value in target.headers.items():
        if name.lower() != "authorization":
            header = pb.header_overrides.add().header
            header.key, header.value = name, value
    _fill_token(pb, target.token)


def _method(number: int) -> str:
    method = _METHODS.get(number)
    if method is None:
        raise InvalidArgument(f"HttpRequest.httpMethod {number} is unknown.")
    return method


def _checked_url(url: str) -> str:
    """As shallow as the real check: what cannot be called after all fails when it is dispatched."""
    if not url:
        raise InvalidArgument("HttpRequest.url is required.")
    if not url.lower().startswith(("http://", "https://")):
        raise InvalidArgument("HttpTarget.url must start with 'http://' or 'https://'.")
    try:
        parts = urlsplit(url)
        is_usable = bool(parts.hostname) and parts.port != 0 and not _CONTROL.search(url)
    except ValueError:
        is_usable = False
    if not is_usable:
        raise InvalidArgument("HttpRequest.url is not a valid URL.")
    if len(url) * 9 > _LONGEST_URL and len(quote(url, safe="%/:?#[]@!$&'()*+,;=~-._")) > _LONGEST_URL:
        raise InvalidArgument(f"HttpRequest.url must be at most {_LONGEST_URL} characters after encoding.")
    return url


def _checked_headers(headers: Any, field: str) -> dict[str, str]:
    kept: dict[str, str] = {}
    size = 0
    for name, value in headers:
        if not _TOKEN.fullmatch(name):
            raise InvalidArgument(f"{field}: {name[:80]!r} is not a header name.")
        if any(character in value for character in "\r\n\0"):
            raise InvalidArgument(f"{field}: the value of {name[:80]} has a line break or a NUL in it.")
        size += len(name) + len(value.encode())
        if not _REPLACED_HEADERS.fullmatch(name):
            kept[name] = value
    if size >= _LARGEST_HEADERS:
        raise InvalidArgument(f"{field} must be smaller than 80KB together.")
    return kept


def _uri_override(pb: Any) -> UriOverride:
    if pb.scheme not in _SCHEMES or pb.uri_override_enforce_mode not in (0, _IF_NOT_EXISTS, _ALWAYS):
        raise InvalidArgument("UriOverride has a scheme or an enforce mode that is unknown.")
    if pb.HasField("host") and not _HOST.fullmatch(pb.host):
        raise InvalidArgument("UriOverride.host must be a host name and cannot be an empty string.")
    if not 0 <= pb.port <= 65535:
        raise InvalidArgument("UriOverride.port must be a positive integer of at most 65535.")
    path = pb.path_override.path if pb.HasField("path_override") else None
    query = pb.query_override.query_params if pb.HasField("query_override") else None
    if _CONTROL.search(f"{path}{query}"):
        raise InvalidArgument("UriOverride must not contain control characters.")
    return UriOverride(
        scheme=_SCHEMES[pb.scheme] if pb.HasField("scheme") else None,
        host=pb.host.strip("[]") if pb.HasField("host") else None,
        port=pb.port if pb.HasField("port") else None,
        path=path,
        query=query,
        only_if_missing=pb.uri_override_enforce_mode == _IF_NOT_EXISTS,
    )


def _fill_uri(pb: Any, uri: UriOverride) -> None:
    pb.uri_override_enforce_mode = _IF_NOT_EXISTS if uri.only_if_missing else _ALWAYS
    if uri.scheme is not None:
        pb.scheme = 1 if uri.scheme == "http" else 2
    if uri.host is not None:
        pb.host = uri.host
    if uri.port is not None:
        pb.port = uri.port
    if uri.path is not None:
        pb.path_override.path = uri.path
        pb.path_override.SetInParent()
    if uri.query is not None:
        pb.query_override.query_params = uri.query
        pb.query_override.SetInParent()


def _token(pb: Any, where: str, *, default_audience: str, default_scope: str) -> Token | None:
    kind = pb.WhichOneof("authorization_header")
    if kind is None:
        return None
    token = getattr(pb, kind)
    account = token.service_account_email
    field = "oidcToken" if kind == "oidc_token" else "oauthToken"
    if not _ACCOUNT.fullmatch(account):
        raise InvalidArgument(f"{where}.{field}.serviceAccountEmail must be an e-mail address.")
    if kind == "oidc_token":
        audience = token.audience or default_audience
        if not audience:
            raise InvalidArgument(f"{where}.{field}.audience is required.")
        return OidcToken(service_account=account, audience=audience)
    scope = token.scope or default_scope
    if not scope:
        raise InvalidArgument(f"{where}.{field}.scope is required.")
    return OAuthToken(service_account=account, scope=scope)


def _fill_token(pb: Any, token: Token | None) -> None:
    if isinstance(token, OidcToken):
        pb.oidc_token.service_account_email = token.service_account
        pb.oidc_token.audience = token.audience
    elif isinstance(token, OAuthToken):
        pb.oauth_token.service_account_email = token.service_account
        pb.oauth_token.scope = token.scope
