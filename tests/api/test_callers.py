"""Who may call: users at the entry in each mode, Cloud Tasks everywhere else."""

from __future__ import annotations

import hashlib
import hmac
import time
from base64 import b64encode
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from localcloud.environment import AUDIENCE, SERVICE_ACCOUNT
from tests.flows.embedded import System, embedded

RELAY_SECRET = "a relay secret of more than thirty-two characters"
SESSION_SECRET = "a session secret of more than thirty-two characters"


def relay_headers(
    openid: str, method: str, target: str, body: bytes, *, at: int | None = None
) -> dict[str, str]:
    timestamp = str(at if at is not None else int(time.time()))
    message = "\n".join([method, target, openid, timestamp, hashlib.sha256(body).hexdigest()])
    signature = hmac.new(RELAY_SECRET.encode(), message.encode(), hashlib.sha256).digest()
    return {
        "x-relay-openid": openid,
        "x-relay-timestamp": timestamp,
        "x-relay-signature": "v1," + b64encode(signature).decode(),
        "content-type": "application/json",
    }


async def test_relay_a_signed_request_names_its_user() -> None:
    settings = {"AUTH_MODE": "relay", "RELAY_SECRET": RELAY_SECRET}
    async with embedded(settings=settings, functions=("entry",)) as system:
        body = b'{"images": ["https://photos.example.com/x.jpg"]}'
        target = f"{system.entry}/tasks"

        async def post(headers: dict[str, str], content: bytes = body) -> Any:
            return await system.http.post(target, content=content, headers=headers)

        accepted = await post(relay_headers("openid-1", "POST", "/tasks", body))
        assert accepted.status_code == 202
        path = f"/tasks/{accepted.json()['taskId']}"
        own = await system.http.get(
            f"{system.entry}{path}", headers=relay_headers("openid-1", "GET", path, b"")
        )
        assert own.json()["userId"] == "openid-1"
        other = await system.http.get(
            f"{system.entry}{path}", headers=relay_headers("openid-2", "GET", path, b"")
        )
        assert other.status_code == 404
        refused = [
            await post({"content-type": "application/json"}),
            await post(relay_headers("openid-1", "POST", "/tasks", body), body.replace(b"x.jpg", b"y.jpg")),
            await post(relay_headers("openid-1", "POST", "/other", body)),
            await post(relay_headers("openid-1", "POST", "/tasks", body, at=int(time.time()) - 3600)),
            await post(relay_headers("openid-1", "POST", "/tasks", body) | {"x-relay-openid": "openid-2"}),
        ]
        assert [answer.status_code for answer in refused] == [401] * len(refused)
        assert {answer.json()["code"] for answer in refused} == {"UNAUTHENTICATED"}
        named = b'{"images": ["https://photos.example.com/x.jpg"], "userId": "openid-2"}'
        forbidden = await post(relay_headers("openid-1", "POST", "/tasks", named), named)
        assert (forbidden.status_code, forbidden.json()["code"]) == (403, "FORBIDDEN")


async def test_wechat_a_login_code_becomes_a_token_that_is_the_user() -> None:
    settings = {"AUTH_MODE": "wechat", "SESSION_SECRET": SESSION_SECRET}
    async with embedded(settings=settings, functions=("entry",)) as system:
        url = f"{system.entry}/session"
        login = await system.http.post(url, json={"code": "code-of-ann"})
        assert login.status_code == 200
        assert login.json()["expiresIn"] > 0
        bearer = {"Authorization": f"Bearer {login.json()['token']}"}
        accepted = await system.post({"images": ["https://photos.example.com/x.jpg"]}, headers=bearer)
        assert accepted.status_code == 202
        again = await system.http.post(url, json={"code": "code-of-ann"})
        assert (again.status_code, again.json()["code"]) == (401, "LOGIN_REFUSED")
        now = int(time.time())
        claims = {"sub": "somebody", "aud": "lookbook-session", "exp": now + 60}
        forged = [
            jwt.encode(claims, "another secret of more than thirty-two characters", algorithm="HS256"),
            jwt.encode(claims | {"exp": now - 1}, SESSION_SECRET, algorithm="HS256"),
            jwt.encode(claims | {"aud": "other"}, SESSION_SECRET, algorithm="HS256"),
            jwt.encode(claims, "", algorithm="none"),
            "nonsense",
        ]
        for token in forged:
            refused = await system.post({}, headers={"Authorization": f"Bearer {token}"})
            assert (refused.status_code, refused.json()["code"]) == (401, "UNAUTHENTICATED")
            assert "www-authenticate" in refused.headers
        assert (await system.post({})).status_code == 401


@pytest.mark.parametrize("function", ["generate", "complete"])
async def test_only_cloud_tasks_may_wake_a_function(api: System, function: str) -> None:
    url = f"{api.supervisor.urls[function]}/sweep"
    stranger = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    now = int(time.time())
    claims = {
        "iss": "https://accounts.google.com",
        "aud": AUDIENCE,
        "email": SERVICE_ACCOUNT,
        "email_verified": True,
        "exp": now + 60,
    }
    tokens = [
        None,
        "nonsense",
        jwt.encode(claims, stranger, algorithm="RS256", headers={"kid": "stranger"}),
        jwt.encode(claims, "a secret of more than thirty-two characters", algorithm="HS256"),
        jwt.encode(claims, "", algorithm="none"),
    ]
    for token in tokens:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        answer = await api.http.post(url, json={"taskId": "task_x"}, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (401, "UNAUTHENTICATED")
        assert answer.headers["content-type"].startswith("application/problem+json")
