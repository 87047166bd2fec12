"""Signatures after Standard Webhooks: a known one, and everything that must not pass."""

from __future__ import annotations

import base64
from datetime import timedelta

import pytest

from shared.adapters.webhook import SignatureRefused, headers, parse_secret, sign, verify

SECRET = b"0123456789abcdef0123456789abcdef"
NOW = 1_760_000_000
BODY = '{"taskId":"task_1","状态":"completed"}'.encode()


def signed() -> dict[str, str]:
    return headers(SECRET, "msg_1", NOW, BODY)


def test_signature_is_the_one_of_the_specification() -> None:
    """Secret, id, time, body and signature of the specification's own example."""
    secret = parse_secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    body = b'{"test": 2432232314}'
    assert sign(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body) == (
        "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    )


def test_own_signature_is_accepted_in_any_spelling_of_the_headers() -> None:
    assert verify(SECRET, signed(), BODY, now=NOW) == "msg_1"
    shouted = {name.title(): value for name, value in signed().items()}
    assert verify(SECRET, shouted, BODY, now=NOW + 299) == "msg_1"


def test_one_right_signature_among_several_is_enough() -> None:
    several = signed()
    several["webhook-signature"] = f"v1a,xyz v1,wrong {several['webhook-signature']}"
    assert verify(SECRET, several, BODY, now=NOW) == "msg_1"


@pytest.mark.parametrize(
    "change",
    [
        {"webhook-id": "msg_2"},
        {"webhook-timestamp": str(NOW + 1)},
        {"webhook-timestamp": "soon"},
        {"webhook-timestamp": "²"},  # a digit that is no number
        {"webhook-timestamp": "9" * 5000},
        {"webhook-signature": "v1,AAAA"},
        {"webhook-signature": "v1,ä"},
        {"webhook-signature": ""},
        {"webhook-id": ""},
    ],
)
def test_changed_header_is_refused(change: dict[str, str]) -> None:
    with pytest.raises(SignatureRefused):
        verify(SECRET, signed() | change, BODY, now=NOW)


def test_changed_body_other_secret_and_missing_headers_are_refused() -> None:
    with pytest.raises(SignatureRefused):
        verify(SECRET, signed(), BODY + b" ", now=NOW)
    with pytest.raises(SignatureRefused):
        verify(SECRET[::-1], signed(), BODY, now=NOW)
    with pytest.raises(SignatureRefused):
        verify(SECRET, {}, BODY, now=NOW)


@pytest.mark.parametrize("late", [301, -301])
def test_old_or_future_message_is_refused(late: int) -> None:
    with pytest.raises(SignatureRefused, match="too far"):
        verify(SECRET, signed(), BODY, now=NOW + late, tolerance=timedelta(minutes=5))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "starts with whsec_"),
        (base64.b64encode(SECRET).decode(), "starts with whsec_"),
        ("whsec_***", "base64"),
        ("whsec_ä", "base64"),
        ("whsec_" + base64.b64encode(b"short").decode(), "24 to 64 bytes"),
        ("whsec_" + base64.b64encode(b"x" * 65).decode(), "24 to 64 bytes"),
    ],
)
def test_malformed_secret_is_told_why(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_secret(text)


def test_id_with_a_full_stop_is_not_signed() -> None:
    with pytest.raises(ValueError, match="full stop"):
        headers(SECRET, "a.b", NOW, BODY)
