"""When two shots are the same picture: the key under which a finished one may be given again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

LIFE: Final = timedelta(seconds=604_800)


def cache_key(
    *,
    user_id: str,
    prompts: Sequence[str],
    index: int,
    source_hashes: Sequence[str],
    model: str,
    aspect_ratio: str,
    api_payload: dict[str, Any],
) -> str:
    """Everything that decides about the picture, and the user: nobody is given another's garment.

    Shots of one task with the same prompt are meant to differ, so each such shot counts those before it.
    """
    prompt = prompts[index]
    twins_before = sum(other == prompt for other in prompts[:index])
    parts = [user_id, prompt, twins_before, list(source_hashes), model, aspect_ratio, api_payload]
    canonical = json.dumps(parts, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()
