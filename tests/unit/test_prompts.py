"""Prompt composition (A-212): templates, poses, the director's answer, the three layers."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass

import pytest

from shared.prompts.compose import compose, frontend_prompt
from shared.prompts.director import (
    LONGEST_ACTION,
    MOST_ASKED,
    actions_without_director,
    director_messages,
    read_actions,
)
from shared.prompts.poses import POSES, choose_poses
from shared.prompts.templates import SYSTEM_PROMPTS, base_prompt
from shared.prompts.text import clean

STUDIO = (
    "Professional commercial photography of clothing on model, studio lighting, high resolution, "
    "clean background, fashion editorial style"
)
LOOKBOOK = (
    "Professional fashion lookbook photography series, multiple angles and poses, "
    "consistent lighting and style, commercial presentation"
)


@dataclass(frozen=True, kw_only=True)
class Look:
    scene: str | None = None
    style: str | None = None
    background: str | None = None
    color: str | None = None


def rng() -> random.Random:
    return random.Random(7)


def test_templates_are_the_seeds_four() -> None:
    """A-131 to A-134."""
    assert {mode: set(scenes) for mode, scenes in SYSTEM_PROMPTS.items()} == {
        "normal": {"商业摄影", "户外场景", "创意风格"},
        "photo_set": {"商业摄影"},
    }
    assert base_prompt("normal", "商业摄影") == STUDIO
    assert base_prompt("photo_set", "商业摄影") == LOOKBOOK
    assert base_prompt("normal", "户外场景") == (
        "Outdoor fashion photography, natural lighting, lifestyle setting, "
        "model wearing clothing in natural environment"
    )
    assert base_prompt("normal", "创意风格") == (
        "Creative fashion photography, artistic composition, unique perspective, editorial style"
    )


@pytest.mark.parametrize(
    ("mode", "scene"),
    [
        ("photo_set", "户外场景"),  # a scene that this mode has no template for
        ("normal", "月球"),  # a scene nobody has heard of
        ("normal", None),  # no scene
        ("video", "商业摄影"),  # an unknown mode crashed the seed (A-d15)
    ],
)
def test_any_other_mode_or_scene_gets_the_studio_template(mode: str, scene: str | None) -> None:
    """A-135."""
    assert base_prompt(mode, scene) == STUDIO


def test_final_prompt_is_the_seeds_sentence() -> None:
    """A-144, A-145, A-146."""
    look = Look(scene="商业摄影", style="现代简约", background="white", color="warm")
    prompts = compose("photo_set", look, "", ["hands in pockets", "walking"])
    frontend = "Scene: 商业摄影, Style: 现代简约, Background: white, Color tone: warm"
    assert prompts.base == LOOKBOOK
    assert prompts.frontend == frontend
    assert prompts.actions == ("hands in pockets", "walking")
    assert prompts.final == tuple(
        f"{LOOKBOOK}. {frontend}. Model action: {action}. "
        "High quality, professional photography, 4K resolution."
        for action in ("hands in pockets", "walking")
    )


def test_free_text_follows_the_params_and_brings_no_second_full_stop() -> None:
    """A-d15: the seed stored the user's text and never used it."""
    prompts = compose("normal", Look(style="复古"), "  穿在海边。 ", ["walking"])
    assert prompts.frontend == "Style: 复古"
    assert f"{STUDIO}. Style: 复古. 穿在海边. Model action: walking. High" in prompts.final[0]


def test_params_that_are_missing_or_blank_leave_no_gap() -> None:
    assert frontend_prompt(Look(style=" ", color="red")) == "Color tone: red"
    prompts = compose("normal", Look(), "", ["walking"])
    assert prompts.final[0].startswith(f"{STUDIO}. Model action: walking.")


def test_user_text_loses_control_and_invisible_characters() -> None:
    assert clean("a\x00b\u202e c\n\td\ud800\u200b") == "ab c d"
    prompts = compose("normal", Look(scene="商业\x07摄影"), "x\r\nModel action: y\x1b", ["walking"])
    assert prompts.base == STUDIO
    assert "Scene: 商业摄影. x Model action: y. Model action: walking" in prompts.final[0]


def test_pose_library_has_at_least_sixty_different_english_poses() -> None:
    assert len({pose.casefold() for pose in POSES}) == len(POSES) >= 60
    assert all(pose.isascii() and not pose.endswith(".") for pose in POSES)


def test_same_seed_gives_the_same_poses() -> None:
    assert choose_poses(90, rng=rng()) == choose_poses(90, rng=rng())
    assert choose_poses(90, rng=rng()) != choose_poses(90, rng=random.Random(8))


def test_director_is_told_the_rules_of_the_seed_and_asked_for_an_object() -> None:
    """A-137 to A-143; A-d13: json_object mode cannot answer with a bare array."""
    system, user = director_messages(scene="户外场景", style="现代简约", count=9)
    assert system == {"role": "system", "content": "你是一个专业的服装摄影指导师"}
    assert user["role"] == "user"
    for line in (
        "请为以下场景生成9个不同的模特动作和姿势描述",
        "场景: 户外场景",
        "风格: 现代简约",
        "数量: 9张",
        "1. 每个动作要具体明确（例如：双手插口袋，侧身45度看向镜头）",
        "2. 动作要符合服装展示的商业摄影标准",
        "3. 如果是套图，动作要有变化但保持风格一致",
        "4. 用英文输出，便于AI图像生成模型理解",
        '{"actions": [',
    ):
        assert line in user["content"]


def test_director_is_not_asked_for_more_poses_than_it_can_write_in_time() -> None:
    assert f"数量: {MOST_ASKED}张" in director_messages(scene=None, style=None, count=500)[1]["content"]


@pytest.mark.parametrize(
    "text",
    [
        '{"actions": ["one", "two"]}',  # as asked for
        '["one", "two"]',  # as the seed asked for
        '```json\n{"actions": ["one", "two"]}\n```',  # fenced
        'Sure! Here they are:\n```\n["one", "two"]\n```\nEnjoy.',  # fenced inside prose
        'Here you go: {"actions": ["one", "two"]} - hope it helps [really]',  # bare inside prose
        'As agreed [1], {"actions": ["one", "two"]}',  # another bracket comes first
        '{"poses": ["one", "two"]}',  # another name for the only list
        '{"actions": ["1. one.", "2) two"]}',  # numbered
        '{"actions": ["one", "two", "thr',  # cut off by the token limit
    ],
)
def test_an_answer_in_any_wrapping_is_understood(text: str) -> None:
    read = read_actions(text, 2, rng=rng())
    assert read.actions == ("one", "two")
    assert read.repaired == 0


def test_useless_items_are_dropped_and_replaced_from_the_library() -> None:
    """A-d14."""
    text = json.dumps({"actions": ["one", "ONE ", "", "  ", 7, None, {"a": 1}, "x" * (LONGEST_ACTION + 1)]})
    read = read_actions(text, 4, rng=rng())
    assert read.actions[0] == "one"
    assert set(read.actions[1:]) <= set(POSES)
    assert (read.repaired, read.dropped) == (3, 7)


def test_too_many_actions_are_trimmed() -> None:
    read = read_actions('["a", "b", "c"]', 2, rng=rng())
    assert (read.actions, read.repaired, read.dropped) == (("a", "b"), 0, 1)


@pytest.mark.parametrize(
    "text",
    [
        "",  # nothing
        "I cannot help with that.",  # prose
        "null",  # JSON, but nothing in it
        '{"actions": "walk"}',  # not a list
        "[" * 50_000,  # nested beyond all measure
        '{"a":' * 50_000,  # likewise
    ],
)
def test_an_answer_without_actions_is_replaced_by_the_library(text: str) -> None:
    read = read_actions(text, 3, rng=rng())
    assert read.repaired == 3
    assert len(set(read.actions)) == 3


def test_without_a_director_the_library_supplies_everything() -> None:
    read = actions_without_director(9, rng=rng())
    assert read.repaired == len(set(read.actions)) == 9
