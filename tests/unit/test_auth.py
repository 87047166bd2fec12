"""Who is let in: session tokens, relayed requests, and the tokens of Cloud Tasks against a real JWKS page."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from localcloud.http import serve_http
from localcloud.tasks.call import OidcToken
from localcloud.tasks.oidc import Signer, signing_key
from shared.auth import Caller, OpenGate, RelayGate, SessionGate, TaskTokens, relay_signature
from shared.problems import Problem

SECRET = "a secret for tests, at least 32 characters"
AUDIENCE = "https://atelier.example"
ACCOUNT = "tasks@atelier.iam.gserviceaccount.com"


@dataclass
class SetClock:
    moment: datetime = field(default_factory=lambda: datetime.now(UTC))

    def now(self) -> datetime:
        return self.moment

    async def sleep(self, seconds: float) -> None:
        self.moment += timedelta(seconds=seconds)


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def enter(gate: OpenGate | SessionGate | RelayGate, headers: dict[str, str]) -> Caller:
    return gate.identify(method="GET", target="/tasks", headers=headers, body=b"")


def unsigned(header: dict[str, Any], claims: dict[str, Any]) -> str:
    """The first two parts of a token, as anybody can write them."""
    return ".".join(
        base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in (header, claims)
    )


def signed_by_hand(header: dict[str, Any], claims: dict[str, Any], secret: bytes) -> str:
    text = unsigned(header, claims)
    mac = hmac.new(secret, text.encode(), hashlib.sha256).digest()
    return f"{text}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"


def test_with_an_open_door_a_caller_is_whoever_it_says() -> None:
    assert enter(OpenGate(), {"x-user-id": "openid-1"}) == Caller(user_id="openid-1")
    assert enter(OpenGate(), {}) == Caller(user_id=None)


def test_a_user_sees_only_its_own_tasks_and_nobody_in_particular_sees_all() -> None:
    assert Caller(user_id="openid-1").may_see("openid-1")
    assert not Caller(user_id="openid-1").may_see("openid-2")
    assert Caller(user_id=None).may_see("openid-2")


def a_session_gate(*, secret: str = SECRET, at: datetime | None = None) -> SessionGate:
    clock = SetClock(moment=at) if at else SetClock()
    return SessionGate(secret=secret, lifetime=timedelta(hours=2), clock=clock)


def test_a_session_token_names_the_user_it_was_issued_to() -> None:
    token, seconds = a_session_gate().issue("openid-1")
    assert seconds == 7200
    assert enter(a_session_gate(), bearer(token)) == Caller(user_id="openid-1")


def test_the_word_bearer_may_be_written_in_any_case() -> None:
    token, _ = a_session_gate().issue("openid-1")
    assert enter(a_session_gate(), {"authorization": f"bearer  {token}"}).user_id == "openid-1"


def test_a_session_token_is_no_longer_good_after_its_lifetime() -> None:
    token, _ = a_session_gate(at=datetime.now(UTC) - timedelta(hours=2, seconds=1)).issue("openid-1")
    with pytest.raises(Problem, match="UNAUTHENTICATED"):
        enter(a_session_gate(), bearer(token))


def test_a_session_token_is_short_lived_and_holds_nothing_but_the_user() -> None:
    token, _ = a_session_gate().issue("openid-1")
    claims = jwt.decode(token, options={"verify_signature": False})
    assert set(claims) == {"sub", "aud", "iat", "exp"}
    assert claims["exp"] - claims["iat"] == 7200


SESSION_CLAIMS = {"sub": "openid-1", "aud": "lookbook-session", "exp": 4_102_444_800}
FORGED_SESSIONS = {
    "no token": "",
    "not a token": "three.little.words",
    "signed with another secret": jwt.encode(SESSION_CLAIMS, SECRET.upper(), "HS256"),
    "not signed": unsigned({"alg": "none", "typ": "JWT"}, SESSION_CLAIMS) + ".",
    "not signed, but said to be": unsigned({"alg": "HS256", "typ": "JWT"}, SESSION_CLAIMS) + ".",
    "another algorithm": jwt.encode(SESSION_CLAIMS, SECRET * 2, "HS512"),
    "for another audience": jwt.encode(SESSION_CLAIMS | {"aud": "elsewhere"}, SECRET, "HS256"),
    "for no audience": jwt.encode({"sub": "openid-1", "exp": 4_102_444_800}, SECRET, "HS256"),
    "without an end": jwt.encode({"sub": "openid-1", "aud": "lookbook-session"}, SECRET, "HS256"),
    "without a user": jwt.encode({"aud": "lookbook-session", "exp": 4_102_444_800}, SECRET, "HS256"),
}


@pytest.mark.parametrize("token", FORGED_SESSIONS.values(), ids=FORGED_SESSIONS)
def test_a_forged_session_is_refused(token: str) -> None:
    with pytest.raises(Problem) as refused:
        enter(a_session_gate(), bearer(token))
    assert (refused.value.code, refused.value.status) == ("UNAUTHENTICATED", 401)


def test_a_session_whose_user_was_changed_is_refused() -> None:
    token, _ = a_session_gate().issue("openid-1")
    header, _, signature = token.split(".")
    changed = unsigned({}, SESSION_CLAIMS | {"sub": "openid-2"}).split(".")[1]
    with pytest.raises(Problem, match="UNAUTHENTICATED"):
        enter(a_session_gate(), bearer(f"{header}.{changed}.{signature}"))


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic b3BlbmlkOg==", "token"])
def test_a_request_without_a_bearer_token_is_asked_to_log_in(header: str) -> None:
    with pytest.raises(Problem, match="UNAUTHENTICATED"):
        enter(a_session_gate(), {"authorization": header} if header else {})


NOON = datetime(2025, 10, 13, 12, 0, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Relayed:
    """A request as the cloud function signs it, and, with other values, as it arrives."""

    method: str = "POST"
    target: str = "/tasks?dry=1"
    openid: str = "openid-1"
    at: datetime = NOON
    body: bytes = b'{"images":["cloud://env/garment.jpg"]}'
    secret: bytes = SECRET.encode()

    @property
    def timestamp(self) -> str:
        return str(int(self.at.timestamp()))

    def signature(self) -> str:
        return relay_signature(self.secret, self.method, self.target, self.openid, self.timestamp, self.body)

    def arrive(self, signature: str) -> Caller:
        return RelayGate(secret=SECRET, clock=SetClock(moment=NOON)).identify(
            method=self.method,
            target=self.target,
            headers={
                "x-relay-openid": self.openid,
                "x-relay-timestamp": self.timestamp,
                "x-relay-signature": signature,
            },
            body=self.body,
        )


def test_a_relayed_request_is_its_users() -> None:
    request = Relayed()
    assert request.arrive(request.signature()) == Caller(user_id="openid-1")


def test_a_relay_signature_is_what_its_description_says() -> None:
    """Spelt out from the docstring, as somebody who writes the CloudBase side would."""
    request = Relayed()
    body_hash = hashlib.sha256(request.body).hexdigest()
    text = f"POST\n/tasks?dry=1\nopenid-1\n{request.timestamp}\n{body_hash}"
    mac = hmac.new(SECRET.encode(), text.encode(), hashlib.sha256).digest()
    assert request.signature() == "v1," + base64.b64encode(mac).decode()


TAMPERED = [
    Relayed(method="GET"),
    Relayed(target="/tasks?dry=0"),
    Relayed(target="/tasks"),
    Relayed(openid="openid-2"),
    Relayed(at=NOON + timedelta(seconds=1)),
    Relayed(body=b'{"images":["cloud://env/other.jpg"]}'),
    Relayed(body=b""),
]


@pytest.mark.parametrize("arriving", TAMPERED)
def test_a_relayed_request_that_was_changed_on_the_way_is_refused(arriving: Relayed) -> None:
    with pytest.raises(Problem, match="UNAUTHENTICATED"):
        arriving.arrive(Relayed().signature())


def test_a_request_that_was_signed_with_another_secret_is_refused() -> None:
    stranger = Relayed(secret=b"somebody else's secret of 32 bytes")
    with pytest.raises(Problem, match="UNAUTHENTICATED"):
        stranger.arrive(stranger.signature())


@pytest.mark.parametrize("seconds", [-301, 301, -86_400])
def test_a_request_that_is_replayed_outside_the_tolerance_is_refused(seconds: int) -> None:
    replayed = Relayed(at=NOON + timedelta(seconds=seconds))
    with pytest.raises(Problem, match="too old or too new"):
        replayed.arrive(replayed.signature())


@pytest.mark.parametrize("seconds", [-300, 300])
def test_clocks_may_differ_by_five_minutes(seconds: int) -> None:
    late = Relayed(at=NOON + timedelta(seconds=seconds))
    assert late.arrive(late.signature()).user_id == "openid-1"


@pytest.mark.parametrize("signature", ["", "v1,", "v1,AAAA", "签名"])
def test_a_signature_of_any_other_form_is_refused(signature: str) -> None:
    with pytest.raises(Problem, match="UNAUTHENTICATED"):
        Relayed().arrive(signature)


@pytest.mark.parametrize("timestamp", ["", "now", "-1", "1.5", "１２３", "²", "9" * 400])
def test_a_timestamp_that_is_not_a_plain_number_is_refused_even_when_it_is_signed(timestamp: str) -> None:
    signature = relay_signature(SECRET.encode(), "GET", "/tasks", "openid-1", timestamp, b"")
    headers = {
        "x-relay-openid": "openid-1",
        "x-relay-timestamp": timestamp,
        "x-relay-signature": signature,
    }
    with pytest.raises(Problem, match="UNAUTHENTICATED"):
        enter(RelayGate(secret=SECRET, clock=SetClock()), headers)


@pytest.mark.parametrize("openid", ["", "o" * 129])
def test_a_relayed_request_without_a_usable_user_is_refused(openid: str) -> None:
    nobody = Relayed(openid=openid)
    with pytest.raises(Problem, match="UNAUTHENTICATED"):
        nobody.arrive(nobody.signature())


KEY = signing_key(None)
STRANGERS_KEY = signing_key(None)
SIGNER = Signer(KEY, clock=SetClock(), random=random.Random(1))
KID = SIGNER.jwks["keys"][0]["kid"]


@dataclass
class KeyPage:
    """The page of signing keys, and how often it was asked for."""

    url: str = ""
    keys: dict[str, Any] = field(default_factory=lambda: dict(SIGNER.jwks))
    asked: int = 0

    async def answer(self, _: Request) -> Response:
        self.asked += 1
        return JSONResponse(self.keys)

    def tokens(self) -> TaskTokens:
        return TaskTokens(jwks_url=self.url, audience=AUDIENCE, service_account=ACCOUNT)


@pytest.fixture
async def page(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[KeyPage]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    made = KeyPage()
    server = await serve_http(Starlette(routes=[Route("/certs", made.answer)]), "127.0.0.1", 0)
    made.url = f"{server.url}/certs"
    yield made
    await server.stop()


def claims(**changes: Any) -> dict[str, Any]:
    now = int(datetime.now(UTC).timestamp())
    good = {
        "iss": "https://accounts.google.com",
        "aud": AUDIENCE,
        "sub": "1",
        "email": ACCOUNT,
        "email_verified": True,
        "iat": now,
        "exp": now + 3600,
    }
    return {name: value for name, value in (good | changes).items() if value is not None}


def a_token(*, key: rsa.RSAPrivateKey = KEY, kid: str = KID, **changes: Any) -> str:
    return jwt.encode(claims(**changes), key, "RS256", headers={"kid": kid})


async def refusal(page: KeyPage, token: str) -> Problem:
    with pytest.raises(Problem) as refused:
        await page.tokens().check(bearer(token))
    return refused.value


async def test_the_token_that_cloud_tasks_signs_is_accepted(page: KeyPage) -> None:
    await page.tokens().check(bearer(SIGNER.bearer(OidcToken(service_account=ACCOUNT, audience=AUDIENCE))))


@pytest.mark.parametrize("issuer", ["https://accounts.google.com", "accounts.google.com"])
async def test_both_spellings_of_googles_name_are_accepted(page: KeyPage, issuer: str) -> None:
    await page.tokens().check(bearer(a_token(iss=issuer)))


async def test_many_tokens_cost_one_look_at_the_key_page(page: KeyPage) -> None:
    tokens = page.tokens()
    for number in range(5):
        await tokens.check(bearer(a_token(sub=str(number))))
    assert page.asked == 1


async def test_every_key_on_the_page_signs(page: KeyPage) -> None:
    """Google shows the next key beside the present one before it signs with it."""
    following = Signer(STRANGERS_KEY, clock=SetClock(), random=random.Random(1))
    page.keys = {"keys": SIGNER.jwks["keys"] + following.jwks["keys"]}
    tokens = page.tokens()
    for signer in (SIGNER, following):
        await tokens.check(bearer(signer.bearer(OidcToken(service_account=ACCOUNT, audience=AUDIENCE))))


async def test_forged_key_names_do_not_make_us_hammer_the_key_page(page: KeyPage) -> None:
    tokens = page.tokens()
    for number in range(20):
        with pytest.raises(Problem, match="UNAUTHENTICATED"):
            await tokens.check(bearer(a_token(kid=f"forged-{number}")))
    assert page.asked <= 2


NOT_GOOD: dict[str, dict[str, Any]] = {
    "another audience": {"aud": "https://elsewhere.example"},
    "no audience": {"aud": None},
    "another issuer": {"iss": "https://accounts.google.com.example"},
    "no issuer": {"iss": None},
    "expired": {"exp": 1_700_000_000},
    "no end": {"exp": None},
    "not yet good": {"nbf": 4_102_444_800},
    "no e-mail": {"email": None},
}


@pytest.mark.parametrize("changes", NOT_GOOD.values(), ids=NOT_GOOD)
async def test_a_token_with_a_wrong_claim_is_refused(page: KeyPage, changes: dict[str, Any]) -> None:
    problem = await refusal(page, a_token(**changes))
    assert (problem.code, problem.status) == ("UNAUTHENTICATED", 401)


NOT_OURS: dict[str, dict[str, Any]] = {
    "another account": {"email": "tasks@another.iam.gserviceaccount.com"},
    "the same account in capitals": {"email": ACCOUNT.upper()},
    "several accounts": {"email": [ACCOUNT]},
    "not verified": {"email_verified": False},
    "verified, says a text": {"email_verified": "true"},
    "nothing said about it": {"email_verified": None},
}


@pytest.mark.parametrize("changes", NOT_OURS.values(), ids=NOT_OURS)
async def test_googles_token_of_another_account_is_forbidden(page: KeyPage, changes: dict[str, Any]) -> None:
    problem = await refusal(page, a_token(**changes))
    assert (problem.code, problem.status) == ("FORBIDDEN", 403)


async def test_a_token_that_a_stranger_signed_is_refused(page: KeyPage) -> None:
    assert (await refusal(page, a_token(key=STRANGERS_KEY))).code == "UNAUTHENTICATED"


async def test_a_token_whose_claims_were_changed_is_refused(page: KeyPage) -> None:
    header, _, signature = a_token(email="somebody@example.com").split(".")
    changed = unsigned({}, claims()).split(".")[1]
    assert (await refusal(page, f"{header}.{changed}.{signature}")).code == "UNAUTHENTICATED"


async def test_a_key_that_is_not_on_the_page_is_refused(page: KeyPage) -> None:
    assert (await refusal(page, a_token(kid="unknown"))).code == "UNAUTHENTICATED"


async def test_an_unsigned_token_is_refused(page: KeyPage) -> None:
    for algorithm in ("none", "None", "NONE"):
        text = unsigned({"alg": algorithm, "typ": "JWT", "kid": KID}, claims())
        assert (await refusal(page, f"{text}.")).code == "UNAUTHENTICATED"


async def test_the_public_key_is_not_taken_for_a_shared_secret(page: KeyPage) -> None:
    """The HS256 confusion: whoever can read the key page could sign with what it shows."""
    public = KEY.public_key()
    shown = [
        public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo),
        public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo),
        SIGNER.jwks["keys"][0]["n"].encode(),
    ]
    for secret in shown:
        forged = signed_by_hand({"alg": "HS256", "typ": "JWT", "kid": KID}, claims(), secret)
        assert (await refusal(page, forged)).code == "UNAUTHENTICATED"


async def test_a_token_cannot_bring_its_own_key(page: KeyPage) -> None:
    own = jwt.algorithms.RSAAlgorithm.to_jwk(STRANGERS_KEY.public_key(), as_dict=True)
    forged = jwt.encode(
        claims(), STRANGERS_KEY, "RS256", headers={"kid": KID, "jwk": own, "jku": "http://127.0.0.1:9/certs"}
    )
    assert (await refusal(page, forged)).code == "UNAUTHENTICATED"


@pytest.mark.parametrize("token", ["x", "a.b.c", "....", "é" * 10, "e30.e30.e30"])
async def test_what_is_no_token_at_all_is_refused(page: KeyPage, token: str) -> None:
    assert (await refusal(page, token)).code == "UNAUTHENTICATED"


async def test_a_request_without_a_token_is_refused_without_asking_for_keys(page: KeyPage) -> None:
    with pytest.raises(Problem, match="UNAUTHENTICATED"):
        await page.tokens().check({})
    assert page.asked == 0


async def test_when_the_key_page_is_down_cloud_tasks_is_told_to_try_again() -> None:
    """Not the caller's fault: a 401 here would look like an attack, a 500 is delivered again."""
    tokens = TaskTokens(jwks_url="http://127.0.0.1:1/certs", audience=AUDIENCE, service_account=ACCOUNT)
    with pytest.raises(Problem) as refused:
        await tokens.check(bearer(a_token()))
    assert (refused.value.code, refused.value.status, refused.value.retryable) == ("INTERNAL", 500, True)
