"""Names that spread: random document ids and hashed Cloud Task names (both services hot-spot on sequences)."""

from __future__ import annotations

import hashlib
import random
import uuid

_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"


def new_task_id(rng: random.Random) -> str:
    return "task_" + "".join(rng.choices(_ALPHABET, k=20))


def new_event_id(rng: random.Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def new_token(rng: random.Random) -> str:
    return f"{rng.getrandbits(96):024x}"


def new_trace_id(rng: random.Random) -> str:
    return f"{rng.getrandbits(128):032x}"


def digest(*parts: object) -> str:
    """A stable name for a combination of parts, such as a Cloud Task's: the same parts give the same name."""
    hasher = hashlib.sha256()
    for part in parts:
        encoded = str(part).encode()
        hasher.update(f"{len(encoded)}:".encode())
        hasher.update(encoded)
    return hasher.hexdigest()[:40]
