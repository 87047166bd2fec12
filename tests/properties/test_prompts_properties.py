"""What holds for prompts whatever a caller or a model writes."""

from __future__ import annotations

import json
import random
import unicodedata
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from shared.prompts.compose import compose
from shared.prompts.director import read_actions
from shared.prompts.poses import choose_poses

ANY_TEXT = st.text(st.characters(codec=None), max_size=60)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=20,
)


@dataclass(frozen=True, kw_only=True)
class Look:
    scene: str | None
    style: str | None
    background: str | None = None
    color: str | None = None


@given(count=st.integers(1, 500), seed=st.integers())
@settings(max_examples=30, deadline=None)
def test_any_number_of_poses_up_to_500_are_all_different(count: int, seed: int) -> None:
    poses = choose_poses(count, rng=random.Random(seed))
    assert len({pose.casefold() for pose in poses}) == count


@given(
    answer=ANY_TEXT
    | JSON.map(json.dumps)
    | st.lists(ANY_TEXT).map(lambda items: json.dumps({"actions": items})),
    count=st.integers(1, 40),
)
@settings(deadline=None)
def test_every_answer_becomes_exactly_as_many_different_usable_actions(answer: str, count: int) -> None:
    read = read_actions(answer, count, rng=random.Random(1))
    assert len(read.actions) == len({action.casefold() for action in read.actions}) == count
    assert all(action.strip() for action in read.actions)
    assert 0 <= read.repaired <= count


@given(mode=ANY_TEXT, scene=st.none() | ANY_TEXT, style=st.none() | ANY_TEXT, free_text=ANY_TEXT)
@settings(deadline=None)
def test_every_final_prompt_is_one_clean_line_with_its_action(
    mode: str, scene: str | None, style: str | None, free_text: str
) -> None:
    prompts = compose(mode, Look(scene=scene, style=style), free_text, ["walking", "sitting"])
    assert len(prompts.final) == 2
    for final, action in zip(prompts.final, ("walking", "sitting"), strict=True):
        assert final.startswith(prompts.base + ". ")
        assert final.endswith(
            f". Model action: {action}. High quality, professional photography, 4K resolution."
        )
        assert not any(unicodedata.category(char) in {"Cc", "Cf", "Cs"} for char in final)
        final.encode()
