"""What people and models type is not always fit for a prompt: one place that makes it clean."""

from __future__ import annotations

import unicodedata

_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def clean(text: str) -> str:
    """One line without control, invisible or unpaired characters, with single spaces."""
    seen = (" " if char.isspace() else char for char in text if char.isspace() or not _is_unseen(char))
    return " ".join("".join(seen).split())


def without_full_stop(text: str) -> str:
    """The layers are joined by full stops, so none of them brings its own."""
    return text.rstrip(" .。")


def _is_unseen(char: str) -> bool:
    return unicodedata.category(char) in _UNSEEN
