"""Pictures that may be given again, in Firestore; the same document keeps two processes from drawing one twice."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from shared.adapters.firestore import Document, Version, Write, create, merge, update
from shared.cache import LIFE
from shared.task import Result


def cache_path(key: str) -> str:
    return f"promptCache/{key}"


def begin_drawing(key: str, known: Version | None, *, token: str, until: datetime) -> Write:
    """Nobody has the picture, and nobody else draws it until then. `known`: the version of a stale document."""
    fields: dict[str, Any] = {"state": "drawing", "token": token, "until": until, "expireAt": until}
    return create(cache_path(key), fields) if known is None else update(cache_path(key), fields, known)


def end_drawing(key: str, *, now: datetime) -> Write:
    """There will be no picture from this attempt."""
    return merge(cache_path(key), {"until": now})


def keep_picture(key: str, result: Result) -> Write:
    return merge(
        cache_path(key),
        {
            "state": "ready",
            "url": result.url,
            "cosKey": result.cos_key,
            "sha256": result.sha256,
            "width": result.width,
            "height": result.height,
            "expireAt": result.timestamp + LIFE,
        },
    )


def kept_picture(document: Document, *, sign: Callable[[str], str], now: datetime) -> Result | None:
    """The picture, if there is one that has not expired, under a freshly signed address."""
    d = document.fields
    if d["state"] != "ready" or d["expireAt"] <= now:
        return None
    return Result(
        url=sign(d["cosKey"]),
        cos_key=d["cosKey"],
        sha256=d["sha256"],
        width=d["width"],
        height=d["height"],
        timestamp=now,
        from_cache=True,
    )


def being_drawn_until(document: Document, *, now: datetime) -> datetime | None:
    """Until when somebody else is drawing it, if so."""
    d = document.fields
    until: datetime | None = d.get("until")
    return until if d["state"] == "drawing" and until is not None and until > now else None
