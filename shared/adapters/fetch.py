"""How an address that a caller gave us is visited without being led into our own network.

The name is resolved once, when the connection is made; every address it has must be public; and the
connection goes to the very address that was checked, while Host, SNI and the certificate keep the name. A
name that answers differently the second time (DNS rebinding) gains nothing: there is no second time.
httpcore2 is used without httpx2 on top, so redirects, proxies, cookies and decompression happen only if this
module does them.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final

import httpcore2
import httpx2

from shared.errors import LookbookError, ServiceUnavailable, SourceRefused, SourceUnavailable, TimedOut

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""Name and port to addresses; raises `socket.gaierror` like the system's."""

_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_NAT64_LOCAL: Final = ipaddress.IPv6Network("64:ff9b:1::/48")
_V4_COMPATIBLE: Final = ipaddress.IPv6Network("::/96")
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_CONNECT_SECONDS: Final = 5.0
_MOST_ADDRESSES: Final = 8
_ANSWER_EXCERPT: Final = 2048
_NAME_IS_UNKNOWN: Final = frozenset({socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)})


async def system_resolver(host: str, port: int) -> Sequence[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[4][0]) for address in found))


def is_public(address: str) -> bool:
    """Whether this is an address of the open internet, also when it is an IPv4 one in IPv6 dress."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.scope_id is not None or ip.is_site_local or ip in _NAT64_LOCAL:
            return False
        inner = _inner_addresses(ip)
        if inner:
            return all(_is_global(one) for one in inner)
    return _is_global(ip)


def _is_global(ip: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    return ip.is_global and not (ip.is_multicast or ip.is_reserved or ip.is_unspecified)


def _inner_addresses(ip: ipaddress.IPv6Address) -> list[ipaddress.IPv4Address]:
    if ip.ipv4_mapped is not None:
        return [ip.ipv4_mapped]
    if ip.sixtofour is not None:
        return [ip.sixtofour]
    if ip.teredo is not None:
        return list(ip.teredo)
    if ip in _NAT64 or ip in _V4_COMPATIBLE:
        return [ipaddress.IPv4Address(int(ip) & 0xFFFF_FFFF)]
    return []


class _CheckedNetwork(httpcore2.AsyncNetworkBackend):
    """Resolves, checks and dials in one step."""

    def __init__(
        self, resolver: Resolver, private_hosts: frozenset[str], network: httpcore2.AsyncNetworkBackend
    ) -> None:
        self._resolver = resolver
        self._private_hosts = private_hosts
        self._network = network

    async def addresses(self, host: str, port: int) -> Sequence[str]:
        try:
            found = await self._resolver(host, port)
        except socket.gaierror as error:
            if error.errno in _NAME_IS_UNKNOWN:
                raise SourceUnavailable(f"The host {host} does not exist.") from error
            raise ServiceUnavailable(f"The host {host} could not be looked up.") from error
        except UnicodeError as error:
            raise SourceRefused("The host name in the address is malformed.") from error
        if not found:
            raise SourceUnavailable(f"The host {host} does not exist.")
        if f"{host}:{port}" not in self._private_hosts and not all(is_public(one) for one in found):
            raise SourceRefused(f"The host {host} is not on the public internet.")
        return found[:_MOST_ADDRESSES]

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        failure: Exception = httpcore2.ConnectError("no address")
        for address in await self.addresses(host, port):
            try:
                return await self._network.connect_tcp(
                    address, port, timeout=timeout, local_address=local_address, socket_options=socket_options
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure

    async def sleep(self, seconds: float) -> None:
        await self._network.sleep(seconds)


class PublicFetcher:
    def __init__(
        self,
        *,
        allowed_hosts: frozenset[str] = frozenset(),
        private_hosts: frozenset[str] = frozenset(),
        resolver: Resolver = system_resolver,
        max_bytes: int = 15 * 1024 * 1024,
        timeout: timedelta = timedelta(seconds=20),
        max_redirects: int = 3,
        ssl_context: ssl.SSLContext | None = None,
        network: httpcore2.AsyncNetworkBackend | None = None,
    ) -> None:
        """`allowed_hosts`: names, or `*.name` for all below it; empty means any public host. Sources only.
        `private_hosts`: `host:port` that may be private and may be plain http. `network` does the dialling.
        """
        self._allowed_hosts = frozenset(host.lower() for host in allowed_hosts)
        self._private_hosts = frozenset(host.lower() for host in private_hosts)
        self._max_bytes = max_bytes
        self._timeout = timeout
        self._max_redirects = max_redirects
        self._network = _CheckedNetwork(resolver, self._private_hosts, network or httpcore2.AnyIOBackend())
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=ssl_context or httpcore2.default_ssl_context(),
            network_backend=self._network,
            max_connections=128,
            max_keepalive_connections=16,
            keepalive_expiry=15.0,
        )

    async def fetch(self, url: str) -> bytes:
        """The body of a source photo."""
        async with _failures_translated(self._timeout):
            target = self._accept_source(url)
            for _ in range(self._max_redirects + 1):
                body_or_next = await self._get(target)
                if isinstance(body_or_next, bytes):
                    return body_or_next
                target = self._accept_source(body_or_next)
        raise SourceRefused("The address of the source photo redirects too often.")

    async def check(self, url: str) -> None:
        """Raises unless a callback to this address would be allowed now."""
        async with _failures_translated(self._timeout):
            target = self._accept(url)
            await self._network.addresses(*_host_and_port(target))

    async def post(
        self, url: str, headers: Mapping[str, str], body: bytes, timeout: timedelta
    ) -> tuple[int, bytes]:
        """The status and the beginning of the answer, whatever the status is; redirects are not followed."""
        async with _failures_translated(timeout):
            target = self._accept(url)
            async with self._pool.stream(
                "POST",
                _core_url(target),
                headers=[*headers.items(), ("accept-encoding", "identity"), ("user-agent", "lookbook")],
                content=body,
                extensions={"timeout": {"connect": _CONNECT_SECONDS}},
            ) as answer:
                excerpt = b""
                async for chunk in answer.aiter_stream():
                    excerpt += chunk
                    if len(excerpt) >= _ANSWER_EXCERPT:
                        break
                return answer.status, excerpt[:_ANSWER_EXCERPT]

    async def close(self) -> None:
        await self._pool.aclose()

    def _accept_source(self, url: str) -> httpx2.URL:
        target = self._accept(url)
        host, port = _host_and_port(target)
        if f"{host}:{port}" in self._private_hosts or not self._allowed_hosts:
            return target
        if not any(_is_host_or_below(host, allowed) for allowed in self._allowed_hosts):
            raise SourceRefused(f"The host {host} is not one that source photos may come from.")
        return target

    def _accept(self, url: str) -> httpx2.URL:
        """What the address itself must be like, before anybody is asked where its host is."""
        try:
            target = httpx2.URL(url)
            host, port = _host_and_port(target)
        except (httpx2.InvalidURL, ValueError, TypeError) as error:
            raise SourceRefused("The address is malformed.") from error
        if target.scheme not in ("http", "https") or not host:
            raise SourceRefused("Only https addresses are allowed.")
        if target.userinfo:
            raise SourceRefused("An address with a user name or password in it is not allowed.")
        if f"{host}:{port}" in self._private_hosts:
            return target
        if target.scheme != "https":
            raise SourceRefused("Only https addresses are allowed.")
        if port != 443:
            raise SourceRefused(f"Port {port} is not allowed, only 443.")
        return target

    async def _get(self, target: httpx2.URL) -> bytes | str:
        """The body, or the address it has moved to."""
        async with self._pool.stream(
            "GET",
            _core_url(target),
            headers=[("accept", "image/*"), ("accept-encoding", "identity"), ("user-agent", "lookbook")],
            extensions={"timeout": {"connect": _CONNECT_SECONDS}},
        ) as answer:
            headers = {name.lower(): value.decode("latin-1") for name, value in answer.headers}
            if answer.status in _REDIRECTS and b"location" in headers:
                try:
                    return str(target.join(headers[b"location"]))
                except (httpx2.InvalidURL, ValueError) as error:
                    raise SourceRefused("The address redirects to a malformed one.") from error
            _check_status(answer.status, target.host)
            if headers.get(b"content-encoding", "identity").lower() != "identity":
                raise SourceRefused("The source photo was sent compressed, which was not asked for.")
            length = headers.get(b"content-length", "")
            if length.isdigit() and int(length) > self._max_bytes:
                raise self._too_large()
            body = bytearray()
            async for chunk in answer.aiter_stream():
                body += chunk
                if len(body) > self._max_bytes:
                    raise self._too_large()
        if not body:
            raise SourceUnavailable(f"{target.host} sent an empty file.")
        return bytes(body)

    def _too_large(self) -> SourceRefused:
        return SourceRefused(f"The source photo is larger than {self._max_bytes / 2**20:g} MiB.")


def _check_status(status: int, host: str) -> None:
    if status == 200:
        return
    if status in (408, 425, 429) or status >= 500:
        raise ServiceUnavailable(f"{host} answered {status}.")
    raise SourceUnavailable(f"{host} answered {status}.")


def _host_and_port(url: httpx2.URL) -> tuple[str, int]:
    host = url.raw_host.decode("ascii").lower().rstrip(".")
    return host, url.port or (443 if url.scheme == "https" else 80)


def _core_url(url: httpx2.URL) -> httpcore2.URL:
    host, _ = _host_and_port(url)
    return httpcore2.URL(
        scheme=url.raw_scheme, host=host.encode("ascii"), port=url.port, target=url.raw_path or b"/"
    )


def _is_host_or_below(host: str, allowed: str) -> bool:
    if allowed.startswith("*."):
        return host.endswith(allowed[1:])
    return host == allowed


@asynccontextmanager
async def _failures_translated(timeout: timedelta) -> AsyncIterator[None]:
    """All of it ends within `timeout` and fails in our own words, since an address may hold a signature."""
    failure: LookbookError
    try:
        async with asyncio.timeout(timeout.total_seconds()):
            yield
        return
    except (TimeoutError, httpcore2.TimeoutException):
        failure = TimedOut("The other side did not answer in time.")
    except httpcore2.ConnectError:
        failure = ServiceUnavailable("The other side could not be reached.")
    except (httpcore2.NetworkError, httpcore2.ProtocolError):
        failure = ServiceUnavailable("The connection to the other side broke.")
    except (httpcore2.UnsupportedProtocol, httpcore2.ProxyError):
        failure = SourceRefused("Only https addresses are allowed.")
    raise failure
