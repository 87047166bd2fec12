"""What a caller may set on the model: known settings within their ranges, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from shared.errors import InvalidPrompt
from shared.payload import read_payload

HARASSMENT = "HARM_CATEGORY_HARASSMENT"


def test_an_empty_payload_sets_nothing() -> None:
    assert read_payload({}).model_dump(exclude_none=True) == {}


def test_every_setting_is_read_by_the_name_it_has_on_the_wire() -> None:
    given: dict[str, Any] = {
        "temperature": 0.5,
        "topP": 0.9,
        "topK": 40,
        "seed": 7,
        "maxOutputTokens": 4096,
        "presencePenalty": 1.0,
        "frequencyPenalty": -1.0,
        "systemInstruction": "Keep the garment unchanged.",
        "safetySettings": [{"category": HARASSMENT, "threshold": "BLOCK_ONLY_HIGH"}],
        "imageSize": "2K",
    }
    assert read_payload(given).model_dump(by_alias=True, exclude_none=True) == given


@pytest.mark.parametrize(
    ("name", "inside", "outside"),
    [
        ("temperature", [0, 2], [-0.1, 2.1, float("nan"), float("inf"), "hot"]),
        ("topP", [0, 1], [-0.1, 1.1]),
        ("topK", [1, 1000], [0, 1001, 1.5]),
        ("seed", [-(2**31), 2**31 - 1], [-(2**31) - 1, 2**31]),
        ("maxOutputTokens", [1, 65_536], [0, 65_537]),
        ("presencePenalty", [-2, 2], [-2.1, 2.1]),
        ("frequencyPenalty", [-2, 2], [-2.1, 2.1]),
        ("systemInstruction", ["", "x" * 4000], ["x" * 4001, 1]),
        ("imageSize", ["1K", "2K", "4K"], ["8K", "1k", 1]),
    ],
)
def test_a_setting_is_taken_within_its_range_and_refused_by_name_outside(
    name: str, inside: list[Any], outside: list[Any]
) -> None:
    for value in inside:
        assert read_payload({name: value})
    for value in outside:
        with pytest.raises(InvalidPrompt, match=rf"apiPayload\.{name} is not valid"):
            read_payload({name: value})


@pytest.mark.parametrize(
    "name", ["temprature", "top_k", "tools", "responseModalities", "cachedContent", "candidateCount"]
)
def test_an_unknown_setting_is_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidPrompt, match=f"apiPayload.{name} is not a setting of this model"):
        read_payload({name: 1})


def test_safety_checks_cannot_be_turned_off() -> None:
    for threshold in ("BLOCK_NONE", "OFF", "HARM_BLOCK_THRESHOLD_UNSPECIFIED"):
        with pytest.raises(InvalidPrompt, match=r"safetySettings\.0\.threshold"):
            read_payload({"safetySettings": [{"category": HARASSMENT, "threshold": threshold}]})


def test_safety_checks_are_those_the_model_knows() -> None:
    with pytest.raises(InvalidPrompt, match=r"safetySettings\.0\.category"):
        read_payload({"safetySettings": [{"category": "HARM_X", "threshold": "BLOCK_ONLY_HIGH"}]})


def test_what_was_sent_is_not_repeated() -> None:
    with pytest.raises(InvalidPrompt) as refused:
        read_payload({"temperature": "a secret"})
    assert "secret" not in refused.value.message


def test_a_very_long_name_is_cut() -> None:
    with pytest.raises(InvalidPrompt) as refused:
        read_payload({"x" * 100_000: 1})
    assert len(refused.value.message) < 200
