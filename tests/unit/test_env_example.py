"""`.env.example` is the list of settings that people read: it is complete, and it tells the truth."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from pydantic import BaseModel, SecretStr

from localcloud.environment import (
    SEED_KEYS,
    SETTINGS,
    Addresses,
    read_env_file,
    real_services,
    settings_for,
)
from shared.settings import FOR_TARGET, AdminSettings, load

EXAMPLE = Path(__file__).parents[2] / ".env.example"
PLATFORMS_OWN = {"K_SERVICE"}  # Cloud Run sets it; a person never does
READERS: dict[str, type[BaseModel]] = {**FOR_TARGET, "admin": AdminSettings}
CHINESE = re.compile(r"[\u4e00-\u9fff]")


@dataclass(frozen=True, kw_only=True)
class Entry:
    name: str
    value: str
    comments: tuple[str, ...]

    @property
    def readers(self) -> set[str]:
        return set(self.comments[-1].partition(" · ")[0].split(", "))

    @property
    def need(self) -> str:
        """`必填 required`, `可选 optional` or `默认 default: …`."""
        return self.comments[-1].partition(" · ")[2]


def entries() -> list[Entry]:
    found: list[Entry] = []
    comments: list[str] = []
    for line in EXAMPLE.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            comments.append(line.removeprefix("#").strip())
        elif line:
            name, _, value = line.partition("=")
            found.append(Entry(name=name, value=value, comments=tuple(comments)))
            comments = []
        else:
            comments = []
    return found


ENTRIES = entries()


def names_in_classes() -> set[str]:
    return {
        str(field.alias) for kind in READERS.values() for field in kind.model_fields.values()
    } - PLATFORMS_OWN


def spelt(default: object) -> str:
    """A default as a person would write it in the file; empty if it stands for nothing."""
    if isinstance(default, SecretStr):
        return default.get_secret_value()
    if isinstance(default, frozenset | list):
        assert not default
        return ""
    return f"{default:g}" if isinstance(default, float) else str(default)


def test_every_setting_of_every_class_is_in_the_example() -> None:
    assert names_in_classes() - {entry.name for entry in ENTRIES} == set()


def test_nothing_is_in_the_example_that_no_class_reads() -> None:
    assert {entry.name for entry in ENTRIES} - names_in_classes() == set()


def test_no_setting_is_in_the_example_twice() -> None:
    assert [name for name, times in Counter(entry.name for entry in ENTRIES).items() if times > 1] == []


def test_the_embedded_cloud_knows_the_same_settings() -> None:
    assert {entry.name for entry in ENTRIES} == SETTINGS


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_every_setting_is_explained_in_chinese_and_in_english(entry: Entry) -> None:
    explanation = entry.comments[:-1]
    assert any(CHINESE.search(line) for line in explanation)
    assert any(re.search(r"[a-z]{3}", line) and not CHINESE.search(line) for line in explanation)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_the_functions_that_the_example_names_are_those_that_read_the_setting(entry: Entry) -> None:
    reading = {
        reader
        for reader, kind in READERS.items()
        if any(field.alias == entry.name for field in kind.model_fields.values())
    }
    assert entry.readers == reading


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_the_example_is_right_about_what_is_required_and_about_every_default(entry: Entry) -> None:
    fields = [
        field
        for kind in READERS.values()
        for field in kind.model_fields.values()
        if field.alias == entry.name
    ]
    if any(field.is_required() for field in fields):
        assert entry.need == "必填 required"
        return
    (default,) = {spelt(field.get_default(call_default_factory=True)) for field in fields}
    assert entry.need == (f"默认 default: {default}" if default else "可选 optional")


def test_the_example_sets_nothing_and_holds_no_secret() -> None:
    assert [entry.name for entry in ENTRIES if entry.value] == []


def test_a_copy_of_the_example_runs_on_the_embedded_cloud_alone() -> None:
    given = read_env_file(EXAMPLE.read_text(encoding="utf-8"))
    local = settings_for(
        Addresses(
            firestore="127.0.0.1:1",
            tasks="127.0.0.1:2",
            jwks_url="http://127.0.0.1:3/jwks",
            entry="http://127.0.0.1:4",
            generate="http://127.0.0.1:5",
            complete="http://127.0.0.1:6",
            wechat="http://127.0.0.1:7",
            receiver="http://127.0.0.1:8",
            callback_url="http://127.0.0.1:8/callback",
            sample="cloud://lookbook-local/garment.jpg",
            gemini="http://127.0.0.1:9",
            openai="http://127.0.0.1:10",
            cos="http://127.0.0.1:11",
        ),
        keys=SEED_KEYS,
        given=given,
        extra={},
    )
    assert real_services(given) == frozenset()
    for kind in READERS.values():
        assert load(kind, local)
