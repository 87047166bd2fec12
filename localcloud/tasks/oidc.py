"""Who a task says it is: tokens that verify like Google's, signed with a key that a JWKS page shows."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from localcloud.tasks.call import OidcToken, Token
from shared.clock import Clock

ISSUER = "https://accounts.google.com"
LIFETIME = timedelta(hours=1)
_FRESH_ENOUGH = timedelta(minutes=35)
"""A token in hand is used while it will live this long: longer than any dispatch deadline."""
_FORGET_ABOVE = 1000


@dataclass(frozen=True, slots=True)
class _Minted:
    text: str
    expires: datetime


class Signer:
    """Signing costs a millisecond, so a token is kept for everybody who asks for the same one."""

    def __init__(self, key: rsa.RSAPrivateKey, *, clock: Clock, random: Random) -> None:
        self._key = key
        self._clock = clock
        self._random = random
        public = key.public_key()
        der = public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
        self._kid = hashlib.sha256(der).hexdigest()[:40]
        jwk = jwt.algorithms.RSAAlgorithm.to_jwk(public, as_dict=True)
        self._jwk = {"kty": jwk["kty"], "n": jwk["n"], "e": jwk["e"]}
        self._minted: dict[Token, _Minted] = {}

    @property
    def jwks(self) -> dict[str, Any]:
        return {"keys": [{**self._jwk, "alg": "RS256", "use": "sig", "kid": self._kid}]}

    def bearer(self, wanted: Token) -> str:
        now = self._clock.now()
        minted = self._minted.get(wanted)
        if minted is None or minted.expires - now < _FRESH_ENOUGH:
            if len(self._minted) >= _FORGET_ABOVE:
                self._minted.clear()
            text = self._id_token(wanted, now) if isinstance(wanted, OidcToken) else self._access_token()
            minted = self._minted[wanted] = _Minted(text, now + LIFETIME)
        return minted.text

    def _id_token(self, wanted: OidcToken, now: datetime) -> str:
        # Google's subject is the account's number; ours is one that stays the same for an e-mail address.
        subject = str(int(hashlib.sha256(wanted.service_account.encode()).hexdigest(), 16) % 10**21).zfill(21)
        issued = int(now.timestamp())
        claims = {
            "iss": ISSUER,
            "aud": wanted.audience,
            "azp": subject,
            "sub": subject,
            "email": wanted.service_account,
            "email_verified": True,
            "iat": issued,
            "exp": issued + int(LIFETIME.total_seconds()),
        }
        return jwt.encode(claims, self._key, algorithm="RS256", headers={"kid": self._kid})

    def _access_token(self) -> str:
        """Google's access tokens are opaque: nobody but Google can check one."""
        return f"ya29.local-{self._random.getrandbits(256):064x}"


def signing_key(data: Path | None) -> rsa.RSAPrivateKey:
    """A new key, or the one that the data directory holds, so that tokens outlive a restart."""
    path = data / "oidc-key.pem" if data else None
    if path and path.exists():
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
        if not isinstance(key, rsa.RSAPrivateKey):
            raise ValueError(f"{path.name} does not hold an RSA key")
        return key
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    if path:
        pem = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        partial = path.with_suffix(".partial")
        partial.touch(mode=0o600)
        partial.write_bytes(pem)
        partial.replace(path)
    return key
