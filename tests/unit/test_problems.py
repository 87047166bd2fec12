"""Refusals as documents: stable codes, Chinese first, JSON pointers, and nothing of what was sent."""

from __future__ import annotations

import re

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from shared.problems import CODES, FieldProblem, Problem, invalid, pointer

BILINGUAL = re.compile(r".*[\u4e00-\u9fff].* / .*[A-Za-z]{2}.*")


class Look(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    scene: str = Field(max_length=3)
    counts: list[int] = Field(min_length=1, max_length=2)


def refused(value: object) -> Problem:
    with pytest.raises(ValidationError) as caught:
        Look.model_validate(value)
    return invalid(caught.value.errors(include_url=False, include_input=False))


@pytest.mark.parametrize("code", CODES)
def test_every_code_has_a_status_and_a_sentence_in_chinese_and_in_english(code: str) -> None:
    problem = Problem(code)
    assert re.fullmatch(r"[A-Z_]+", code)
    assert 400 <= problem.status <= 599
    assert BILINGUAL.fullmatch(problem.title)


@pytest.mark.parametrize("code", CODES)
def test_only_limits_and_our_own_failures_are_worth_the_same_request_again(code: str) -> None:
    problem = Problem(code)
    assert problem.retryable is (problem.status == 429 or problem.status >= 500)


def test_a_code_that_is_not_in_the_list_cannot_be_used() -> None:
    with pytest.raises(KeyError):
        Problem("SOMETHING_ELSE")


def test_a_problem_without_detail_or_fields_does_not_mention_them() -> None:
    assert set(Problem("NOT_FOUND").to_json()) == {"type", "title", "status", "code", "retryable"}


def test_a_problem_reads_well_in_a_traceback() -> None:
    assert str(Problem("FORBIDDEN", "not you")) == "FORBIDDEN: not you"
    assert str(Problem("FORBIDDEN")).startswith("FORBIDDEN: 没有权限")


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ((), ""),  # the whole document
        (("images", 0), "/images/0"),
        (("params", "aspectRatio"), "/params/aspectRatio"),
        (("a/b", "c~d"), "/a~1b/c~0d"),
        (("~1",), "/~01"),
        (("",), "/"),
    ],
)
def test_pointers_follow_rfc_6901(parts: tuple[int | str, ...], expected: str) -> None:
    assert pointer(parts) == expected


@pytest.mark.parametrize(
    ("value", "at", "chinese"),
    [
        ({"counts": [1]}, "/scene", "缺少该字段"),
        ({"scene": "a", "counts": [1], "sceen": "b"}, "/sceen", "不认识的字段"),
        ({"scene": "abcd", "counts": [1]}, "/scene", "文字过长"),
        ({"scene": 1, "counts": [1]}, "/scene", "应为文字"),
        ({"scene": "a", "counts": []}, "/counts", "项目过少"),
        ({"scene": "a", "counts": [1, 2, 3]}, "/counts", "项目过多"),
        ({"scene": "a", "counts": ["1"]}, "/counts/0", "应为整数"),
        ({"scene": "a", "counts": {}}, "/counts", "应为数组"),
    ],
)
def test_each_fault_is_told_where_it_is_in_both_languages(value: object, at: str, chinese: str) -> None:
    (found,) = refused(value).fields
    assert found.pointer == at
    assert found.message.startswith(f"{chinese} / ")
    assert BILINGUAL.fullmatch(found.message)


def test_every_fault_of_a_request_is_told_at_once() -> None:
    found = refused({"scene": 1, "counts": [], "extra": 1}).fields
    assert {field.pointer for field in found} == {"/scene", "/counts", "/extra"}


def test_a_request_with_thousands_of_faults_gets_a_short_answer() -> None:
    assert len(refused({f"field{number}": 1 for number in range(5000)}).fields) == 50


def test_what_was_sent_is_not_repeated() -> None:
    told = refused({"scene": "a secret", "counts": ["another secret"]}).to_json()
    assert "secret" not in str(told)


def test_fields_are_listed_in_the_document() -> None:
    problem = Problem("INVALID_REQUEST", fields=[FieldProblem(pointer="/a", message="错 / wrong")])
    assert problem.to_json()["errors"] == [{"pointer": "/a", "message": "错 / wrong"}]
