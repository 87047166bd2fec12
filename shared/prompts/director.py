"""What the language model that directs the poses is told, and how its answer is read however it comes."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from shared.prompts.poses import choose_poses
from shared.prompts.text import clean, without_full_stop

SYSTEM_MESSAGE: Final = "你是一个专业的服装摄影指导师"
MOST_ASKED: Final = 60
"""More poses than this take a model longer to write than a task may wait; the library supplies the rest."""
LONGEST_ACTION: Final = 300
_LONGEST_ANSWER: Final = 100_000
_MOST_CANDIDATES: Final = 40

_FENCE = re.compile(r"```[a-zA-Z]*\s*(.*?)```", re.DOTALL)
_NUMBERING = re.compile(r"^(?:\d{1,3}[.):、]|[-*•])\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Actions:
    actions: tuple[str, ...]
    """As many as were asked for, all different."""
    repaired: int
    """How many of them had to come from the pose library."""
    dropped: int
    """How many items of the answer were of no use, or too many."""


def director_messages(*, scene: str | None, style: str | None, count: int) -> list[dict[str, str]]:
    asked = min(max(count, 1), MOST_ASKED)
    request = "\n".join(
        (
            f"{SYSTEM_MESSAGE}。请为以下场景生成{asked}个不同的模特动作和姿势描述。",
            "",
            f"场景: {clean(scene or '') or '商业摄影'}",
            f"风格: {clean(style or '') or '不限'}",
            f"数量: {asked}张",
            "",
            "要求:",
            "1. 每个动作要具体明确（例如：双手插口袋，侧身45度看向镜头）",
            "2. 动作要符合服装展示的商业摄影标准",
            "3. 如果是套图，动作要有变化但保持风格一致",
            "4. 用英文输出，便于AI图像生成模型理解",
            "",
            '请以JSON对象格式返回: {"actions": ["action1", "action2", ...]}',
        )
    )
    return [{"role": "system", "content": SYSTEM_MESSAGE}, {"role": "user", "content": request}]


def read_actions(text: str, count: int, *, rng: random.Random) -> Actions:
    """Exactly `count` different actions: from the answer as far as it goes, then from the pose library."""
    items = _find_items(text[:_LONGEST_ANSWER])
    useful: dict[str, str] = {}
    for item in items:
        action = _read_action(item)
        if action:
            useful.setdefault(action.casefold(), action)
    kept = tuple(useful.values())[:count]
    padding = choose_poses(count - len(kept), rng=rng, without=kept)
    return Actions(actions=kept + padding, repaired=len(padding), dropped=len(items) - len(kept))


def actions_without_director(count: int, *, rng: random.Random) -> Actions:
    """For when there is no answer at all."""
    return Actions(actions=choose_poses(count, rng=rng), repaired=count, dropped=0)


def _read_action(item: Any) -> str | None:
    if not isinstance(item, str) or len(item) > LONGEST_ACTION:
        return None
    return without_full_stop(_NUMBERING.sub("", clean(item))) or None


def _find_items(text: str) -> list[Any]:
    for candidate in _candidates(text):
        items = _items_of(candidate)
        if items:
            return items
    return _cut_off_items(text)


def _candidates(text: str) -> Iterator[Any]:
    """Every JSON value that may be meant: the whole text, fenced blocks, then whatever opens in the prose."""
    for block in (text, *(found.group(1) for found in _FENCE.finditer(text))):
        try:
            yield json.loads(block)
        except (ValueError, RecursionError):
            continue
    decoder = json.JSONDecoder()
    position, tries = 0, 0
    while tries < _MOST_CANDIDATES and (opening := re.compile(r"[\[{]").search(text, position)):
        tries += 1
        try:
            value, position = decoder.raw_decode(text, opening.start())
            yield value
        except (ValueError, RecursionError):
            position = opening.start() + 1


def _items_of(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value if any(isinstance(item, str) for item in value) else []
    if isinstance(value, dict):
        actions = value.get("actions")
        if isinstance(actions, list):
            return actions
        lists = [member for member in value.values() if isinstance(member, list)]
        return _items_of(lists[0]) if len(lists) == 1 else []
    return []


def _cut_off_items(text: str) -> list[Any]:
    """The strings of a list whose end is missing, because the model ran out of tokens."""
    decoder = json.JSONDecoder()
    items: list[Any] = []
    position = text.find("[") + 1
    while position and (quote := re.compile(r"\s*,?\s*(?=\")").match(text, position)):
        try:
            item, position = decoder.raw_decode(text, quote.end())
        except ValueError:
            break
        items.append(item)
    return items
