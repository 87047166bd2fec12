"""How a receiver can tell that a callback is ours: signatures after the Standard Webhooks specification."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

_PREFIX: Final = "whsec_"
_SHORTEST, _LONGEST = 24, 64
"""Bytes, as the specification asks."""


class SignatureRefused(ValueError):
    """The signature does not belong to this message."""


def parse_secret(text: str) -> bytes:
    """The key inside `whsec_<base64>`."""
    if not text.startswith(_PREFIX):
        raise ValueError("a webhook secret starts with whsec_")
    try:
        secret = base64.b64decode(text.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("a webhook secret is base64 after whsec_") from None
    if not _SHORTEST <= len(secret) <= _LONGEST:
        raise ValueError(f"a webhook secret has {_SHORTEST} to {_LONGEST} bytes, this one has {len(secret)}")
    return secret


def sign(secret: bytes, webhook_id: str, timestamp: int, body: bytes) -> str:
    message = f"{webhook_id}.{timestamp}.".encode() + body
    digest = hmac.new(secret, message, hashlib.sha256).digest()
    return "v1," + base64.b64encode(digest).decode()


def headers(secret: bytes, webhook_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    if "." in webhook_id:
        # The parts of the signed text are divided by full stops.
        raise ValueError("a webhook id has no full stop in it")
    return {
        "content-type": "application/json",
        "webhook-id": webhook_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": sign(secret, webhook_id, timestamp, body),
    }


def verify(
    secret: bytes,
    received: Mapping[str, str],
    body: bytes,
    *,
    now: int,
    tolerance: timedelta = timedelta(minutes=5),
) -> str:
    """The webhook id, if the signature is right and fresh; `SignatureRefused` if not.

    `now` is in Unix seconds. Header names are compared without regard to case.
    """
    lowered = {name.lower(): value for name, value in received.items()}
    webhook_id = lowered.get("webhook-id", "")
    stamp = lowered.get("webhook-timestamp", "")
    signatures = lowered.get("webhook-signature", "")
    if not (webhook_id and stamp and signatures):
        raise SignatureRefused("a webhook header is missing")
    if not (stamp.isascii() and stamp.isdigit() and len(stamp) <= 12):
        raise SignatureRefused("the webhook timestamp is not a number of seconds")
    if abs(now - int(stamp)) > tolerance.total_seconds():
        raise SignatureRefused("the webhook timestamp is too far from the present")
    expected = sign(secret, webhook_id, int(stamp), body).encode()
    # Several signatures, divided by spaces, come while a secret is being replaced.
    if not any(hmac.compare_digest(expected, one.encode()) for one in signatures.split(" ")):
        raise SignatureRefused("the webhook signature is wrong")
    return webhook_id
