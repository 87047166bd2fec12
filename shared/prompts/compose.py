"""The three layers become one prompt per shot: the template, what the caller asked for, and the pose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from shared.prompts.templates import base_prompt
from shared.prompts.text import clean, without_full_stop

QUALITY: Final = "High quality, professional photography, 4K resolution."


class LookParams(Protocol):
    """The part of a task's params that words a prompt."""

    @property
    def scene(self) -> str | None: ...
    @property
    def style(self) -> str | None: ...
    @property
    def background(self) -> str | None: ...
    @property
    def color(self) -> str | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    base: str
    frontend: str
    actions: tuple[str, ...]
    final: tuple[str, ...]
    """One for each action, in the same order."""


def compose(mode: str, params: LookParams, free_text: str, actions: Sequence[str]) -> Prompts:
    base = base_prompt(mode, clean(params.scene or ""))
    frontend = frontend_prompt(params)
    wish = without_full_stop(clean(free_text))
    opening = ". ".join(layer for layer in (base, frontend, wish) if layer)
    return Prompts(
        base=base,
        frontend=frontend,
        actions=tuple(actions),
        final=tuple(f"{opening}. Model action: {action}. {QUALITY}" for action in actions),
    )


def frontend_prompt(params: LookParams) -> str:
    named = (
        ("Scene", params.scene),
        ("Style", params.style),
        ("Background", params.background),
        ("Color tone", params.color),
    )
    cleaned = ((name, clean(value or "")) for name, value in named)
    return ", ".join(f"{name}: {value}" for name, value in cleaned if value)
