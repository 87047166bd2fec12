"""Addresses that callers give us: what is visited, what is refused, and that nobody is led inside."""

from __future__ import annotations

import asyncio
import datetime as dt
import gzip
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpcore2
import pytest
import pytest_asyncio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse

from localcloud.http import HttpServer, hang
from shared.adapters.fetch import PublicFetcher, is_public
from shared.errors import LookbookError, ServiceUnavailable, SourceRefused, SourceUnavailable, TimedOut
from tests.contracts.conftest import Serve

PUBLIC = "93.184.216.34"
Fetchers = Callable[..., PublicFetcher]


def resolving(*answers: Sequence[str]) -> Callable[[str, int], Awaitable[Sequence[str]]]:
    """A resolver that gives these answers one after the other, and the last one for ever."""
    left = list(answers)

    async def resolve(host: str, port: int) -> Sequence[str]:
        return left.pop(0) if len(left) > 1 else left[0]

    return resolve


@pytest_asyncio.fixture(loop_scope="session")
async def fetchers() -> AsyncIterator[Fetchers]:
    made: list[PublicFetcher] = []

    def make(server: HttpServer | None = None, **options: Any) -> PublicFetcher:
        """With a server: it is reachable as the private host `photos.test`."""
        if server is not None:
            options.setdefault("private_hosts", frozenset({f"photos.test:{server.port}"}))
            options.setdefault("resolver", resolving(["127.0.0.1"]))
        fetcher = PublicFetcher(**options)
        made.append(fetcher)
        return fetcher

    yield make
    for fetcher in made:
        await fetcher.close()


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",  # the metadata server of every cloud
        "100.64.0.1",  # carrier-grade NAT
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1",
        "fe80::1%eth0",
        "fc00::1",
        "fd00:ec2::254",  # the metadata server in IPv6
        "fec0::1",
        "ff02::1",
        "::ffff:127.0.0.1",  # IPv4 in IPv6 dress
        "::ffff:169.254.169.254",
        "::127.0.0.1",
        "64:ff9b::7f00:1",  # NAT64
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::a00:1",
        "2002:7f00:1::",  # 6to4
        "2001:0:4136:e378:8000:63bf:80ff:fffe",  # Teredo with 127.0.0.1 inside
        "not an address",
    ],
)
def test_private_address_is_not_public_in_any_dress(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", [PUBLIC, "2606:2800:220:1::1", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_public_address_is_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "answer",
    [
        ["127.0.0.1"],
        ["10.0.0.7"],
        ["169.254.169.254"],
        ["::ffff:127.0.0.1"],
        ["64:ff9b::7f00:1"],
        [PUBLIC, "10.0.0.7"],  # one bad apple
    ],
)
async def test_name_with_a_private_address_is_refused(fetchers: Fetchers, answer: list[str]) -> None:
    fetcher = fetchers(resolver=resolving(answer), network=Dialled())
    with pytest.raises(SourceRefused):
        await fetcher.fetch("https://evil.test/a.jpg")
    with pytest.raises(SourceRefused):
        await fetcher.check("https://evil.test/hook")
    with pytest.raises(SourceRefused):
        await fetcher.post("https://evil.test/hook", {}, b"{}", timedelta(seconds=1))


@pytest.mark.parametrize(
    "url",
    [
        "http://photos.test/a.jpg",  # not encrypted
        "ftp://photos.test/a.jpg",
        "file:///etc/passwd",
        "gopher://photos.test/",
        "https://user:password@photos.test/a.jpg",
        "https://user@photos.test/a.jpg",
        "https://photos.test:8443/a.jpg",
        "https://photos.test:80/a.jpg",
        "https://photos.test:99999/a.jpg",
        "https:///a.jpg",
        "//photos.test/a.jpg",
        "a.jpg",
        "",
        "https://127.0.0.1/a.jpg",  # spelled out
        "https://[::1]/a.jpg",
        "https://2130706433/a.jpg",  # as one number
        "https://0x7f.1/a.jpg",  # as a hexadecimal
        "https://localhost/a.jpg",
    ],
)
async def test_address_that_is_not_plain_public_https_is_refused(fetchers: Fetchers, url: str) -> None:
    with pytest.raises(SourceRefused):
        await fetchers().fetch(url)


class Dialled(httpcore2.AsyncNetworkBackend):
    """Notes what is dialled and connects to a loopback port instead."""

    def __init__(self, port: int = 9) -> None:
        self.dialled: list[tuple[str, int]] = []
        self._port = port
        self._network = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        self.dialled.append((host, port))
        return await self._network.connect_tcp("127.0.0.1", self._port, timeout=timeout)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for shop.test, with its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "shop.test")])
    now = dt.datetime.now(dt.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("shop.test")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path_factory.mktemp("tls") / "shop.pem"
    file.write_bytes(
        signed.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return file


class TlsServer:
    """Answers every request with what it saw: the name in SNI and the request head."""

    def __init__(self, certificate: Path) -> None:
        self.names: list[str | None] = []
        self.heads: list[bytes] = []
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate)
        self._context.sni_callback = lambda _object, name, _context: self.names.append(name)

    async def start(self) -> asyncio.Server:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.heads.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nphoto")
            await writer.drain()
            writer.close()

        return await asyncio.start_server(answer, "127.0.0.1", 0, ssl=self._context)


async def test_checked_address_is_dialled_once_while_host_sni_and_certificate_keep_the_name(
    fetchers: Fetchers, certificate: Path
) -> None:
    """DNS rebinding: the second answer would be private, and is never asked for."""
    tls = TlsServer(certificate)
    server = await tls.start()
    network = Dialled(server.sockets[0].getsockname()[1])
    fetcher = fetchers(
        resolver=resolving([PUBLIC], ["127.0.0.1"]),
        network=network,
        ssl_context=ssl.create_default_context(cafile=str(certificate)),
    )
    async with server:
        assert await fetcher.fetch("https://shop.test/a.jpg?sign=s3cret") == b"photo"
        assert network.dialled == [(PUBLIC, 443)]
        assert tls.names == ["shop.test"]
        head = tls.heads[0].lower()
        assert b"host: shop.test\r\n" in head
        assert b"accept-encoding: identity\r\n" in head
        assert b"cookie" not in head
        with pytest.raises(SourceRefused):
            await fetcher.fetch("https://shop.test/a.jpg")
        assert network.dialled == [(PUBLIC, 443)]


async def test_certificate_of_another_name_is_not_accepted(fetchers: Fetchers, certificate: Path) -> None:
    server = await TlsServer(certificate).start()
    fetcher = fetchers(
        resolver=resolving([PUBLIC]),
        network=Dialled(server.sockets[0].getsockname()[1]),
        ssl_context=ssl.create_default_context(cafile=str(certificate)),
    )
    async with server:
        with pytest.raises(ServiceUnavailable):
            await fetcher.fetch("https://other.test/a.jpg")


async def test_private_host_named_in_the_settings_is_reached(serve: Serve, fetchers: Fetchers) -> None:
    async def handler(request: Request) -> Response:
        return Response(b"photo of " + request.headers["host"].encode())

    server = await serve(handler)
    body = await fetchers(server).fetch(f"http://photos.test:{server.port}/a.jpg")
    assert body == f"photo of photos.test:{server.port}".encode()


async def test_exemption_is_for_that_port_only(serve: Serve, fetchers: Fetchers) -> None:
    async def handler(_: Request) -> Response:
        return Response(b"photo")

    server = await serve(handler)
    with pytest.raises(SourceRefused):
        await fetchers(server).fetch(f"http://photos.test:{server.port + 1}/a.jpg")
    with pytest.raises(SourceRefused):
        await fetchers(server).fetch("https://photos.test/a.jpg")


@pytest.mark.parametrize(
    "target",
    [
        "https://inside.test/a.jpg",  # a name with a private address
        "http://photos.test/a.jpg",  # no longer encrypted
        "https://127.0.0.1/a.jpg",
        "https://user:pw@photos.test/a.jpg",
        "file:///etc/passwd",
        "https://[bad",
    ],
)
async def test_redirect_is_checked_like_the_first_address(
    serve: Serve, fetchers: Fetchers, target: str
) -> None:
    async def handler(_: Request) -> Response:
        return Response(status_code=302, headers={"location": target})

    server = await serve(handler)
    with pytest.raises(SourceRefused):
        await fetchers(server).fetch(f"http://photos.test:{server.port}/a.jpg")


async def test_few_redirects_are_followed_and_many_are_not(serve: Serve, fetchers: Fetchers) -> None:
    async def handler(request: Request) -> Response:
        hops = int(request.query_params["hops"])
        return RedirectResponse(f"?hops={hops - 1}") if hops else Response(b"photo")

    server = await serve(handler)
    fetcher = fetchers(server)
    assert await fetcher.fetch(f"http://photos.test:{server.port}/a?hops=3") == b"photo"
    with pytest.raises(SourceRefused, match="too often"):
        await fetcher.fetch(f"http://photos.test:{server.port}/a?hops=4")


@pytest.mark.parametrize(
    ("allowed", "host", "is_allowed"),
    [
        ("shop.test", "shop.test", True),
        ("shop.test", "evilshop.test", False),
        ("shop.test", "a.shop.test", False),
        ("*.shop.test", "a.shop.test", True),
        ("*.shop.test", "shop.test", False),
        ("*.shop.test", "evilshop.test", False),
        ("Shop.test", "SHOP.test.", True),  # names have no case, and may end in a dot
    ],
)
async def test_allow_list_holds_for_sources_and_not_for_callbacks(
    fetchers: Fetchers, allowed: str, host: str, is_allowed: bool
) -> None:
    fetcher = fetchers(allowed_hosts=frozenset({allowed}), resolver=resolving([PUBLIC]), network=Dialled(1))
    with pytest.raises(ServiceUnavailable if is_allowed else SourceRefused):
        await fetcher.fetch(f"https://{host}/a.jpg")  # an allowed one is dialled; nobody listens there
    await fetcher.check(f"https://{host}/hook")


@pytest.mark.parametrize("is_announced", [True, False])
async def test_body_over_the_limit_is_refused(serve: Serve, fetchers: Fetchers, is_announced: bool) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b"x" * 100

    async def handler(_: Request) -> Response:
        return Response(b"x" * 2000) if is_announced else StreamingResponse(chunks())

    server = await serve(handler)
    url = f"http://photos.test:{server.port}/a.jpg"
    with pytest.raises(SourceRefused, match="larger"):
        await fetchers(server, max_bytes=1999).fetch(url)
    assert len(await fetchers(server, max_bytes=2000).fetch(url)) == 2000


async def test_compressed_answer_is_refused_and_not_inflated(serve: Serve, fetchers: Fetchers) -> None:
    async def handler(_: Request) -> Response:
        return Response(gzip.compress(b"0" * 1_000_000), headers={"content-encoding": "gzip"})

    server = await serve(handler)
    with pytest.raises(SourceRefused, match="compressed"):
        await fetchers(server).fetch(f"http://photos.test:{server.port}/a.jpg")


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, SourceUnavailable),
        (403, SourceUnavailable),
        (404, SourceUnavailable),
        (410, SourceUnavailable),
        (204, SourceUnavailable),
        (304, SourceUnavailable),  # we asked for no such thing
        (429, ServiceUnavailable),
        (500, ServiceUnavailable),
        (503, ServiceUnavailable),
    ],
)
async def test_status_decides_whether_trying_again_may_help(
    serve: Serve, fetchers: Fetchers, status: int, kind: type[LookbookError]
) -> None:
    async def handler(_: Request) -> Response:
        return Response(status_code=status)

    server = await serve(handler)
    with pytest.raises(kind) as caught:
        await fetchers(server).fetch(f"http://photos.test:{server.port}/a.jpg?q-signature=s3cret")
    assert "s3cret" not in str(caught.value)


async def test_empty_photo_is_unavailable(serve: Serve, fetchers: Fetchers) -> None:
    async def handler(_: Request) -> Response:
        return Response(b"")

    server = await serve(handler)
    with pytest.raises(SourceUnavailable, match="empty"):
        await fetchers(server).fetch(f"http://photos.test:{server.port}/a.jpg")


@pytest.mark.parametrize(
    ("errno", "kind"), [(socket.EAI_NONAME, SourceUnavailable), (socket.EAI_AGAIN, ServiceUnavailable)]
)
async def test_unknown_name_is_final_and_a_failing_dns_is_not(
    fetchers: Fetchers, errno: int, kind: type[LookbookError]
) -> None:
    async def resolve(host: str, port: int) -> Sequence[str]:
        raise socket.gaierror(errno, "no")

    with pytest.raises(kind):
        await fetchers(resolver=resolve).fetch("https://nowhere.test/a.jpg")


async def test_slow_source_times_out_in_total(serve: Serve, fetchers: Fetchers) -> None:
    async def drip() -> AsyncIterator[bytes]:
        while True:
            yield b"x"
            await asyncio.sleep(0.02)

    async def handler(_: Request) -> Response:
        return StreamingResponse(drip())

    server = await serve(handler)
    with pytest.raises(TimedOut):
        await fetchers(server, timeout=timedelta(seconds=0.2)).fetch(f"http://photos.test:{server.port}/a")


async def test_cut_body_is_not_taken_for_a_photo(fetchers: Fetchers) -> None:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(cut, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    fetcher = fetchers(private_hosts=frozenset({f"127.0.0.1:{port}"}))
    async with server:
        with pytest.raises(ServiceUnavailable):
            await fetcher.fetch(f"http://127.0.0.1:{port}/a.jpg")


async def test_proxy_of_the_environment_is_not_used(
    serve: Serve, fetchers: Fetchers, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def handler(_: Request) -> Response:
        return Response(b"photo")

    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    server = await serve(handler)
    assert await fetchers(server).fetch(f"http://photos.test:{server.port}/a.jpg") == b"photo"


async def test_callback_gets_the_body_and_gives_its_status_and_the_beginning_of_its_answer(
    serve: Serve, fetchers: Fetchers
) -> None:
    async def handler(request: Request) -> Response:
        return Response(await request.body() + request.headers["webhook-id"].encode() + b"!" * 9000, 418)

    server = await serve(handler)
    url = f"http://photos.test:{server.port}/hook"
    fetcher = fetchers(server)
    await fetcher.check(url)
    status, answer = await fetcher.post(url, {"webhook-id": "m1"}, b'{"a":1}', timedelta(seconds=5))
    assert (status, len(answer)) == (418, 2048)
    assert answer.startswith(b'{"a":1}m1!')


async def test_redirect_of_a_callback_is_not_followed(serve: Serve, fetchers: Fetchers) -> None:
    seen: list[str] = []

    async def handler(request: Request) -> Response:
        seen.append(request.url.path)
        return RedirectResponse("/elsewhere")

    server = await serve(handler)
    url = f"http://photos.test:{server.port}/hook"
    assert (await fetchers(server).post(url, {}, b"{}", timedelta(seconds=5)))[0] == 307
    assert seen == ["/hook"]


async def test_silent_callback_times_out(serve: Serve, fetchers: Fetchers) -> None:
    async def handler(request: Request) -> Response:
        await request.body()
        return await hang(request)

    server = await serve(handler)
    with pytest.raises(TimedOut):
        url = f"http://photos.test:{server.port}/hook"
        await fetchers(server).post(url, {}, b"{}", timedelta(seconds=0.2))
