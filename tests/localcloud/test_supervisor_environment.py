"""What the functions are told locally, and what is used for real."""

from __future__ import annotations

import json

import pytest

from localcloud.environment import (
    SEED_KEYS,
    SETTINGS,
    Addresses,
    MalformedEnvFile,
    equal_keys,
    given_settings,
    local_queues,
    process_environment,
    read_env_file,
    real_services,
    settings_for,
    slots_of,
)
from localcloud.services import services_to_start
from shared.settings import FOR_TARGET, load

WHERE = Addresses(
    firestore="127.0.0.1:1",
    tasks="127.0.0.1:2",
    jwks_url="http://127.0.0.1:3/oauth2/v3/certs",
    entry="http://127.0.0.1:4",
    generate="http://127.0.0.1:5",
    complete="http://127.0.0.1:6",
    wechat="http://127.0.0.1:7",
    receiver="http://127.0.0.1:8",
    callback_url="http://127.0.0.1:8/photography/callback",
    sample="cloud://env.bucket/sample.jpg",
    gemini="http://127.0.0.1:9",
    openai="http://127.0.0.1:10",
    cos="http://127.0.0.1:11",
)
KEYS_FOR_REAL = '[{"id": "mine", "key": "real", "maxConcurrent": 5}]'


def local(given: dict[str, str] | None = None, extra: dict[str, str] | None = None) -> dict[str, str]:
    return settings_for(WHERE, keys=SEED_KEYS, given=given or {}, extra=extra or {})


@pytest.mark.parametrize("target", sorted(FOR_TARGET))
def test_every_function_accepts_the_local_settings(target: str) -> None:
    load(FOR_TARGET[target], local())


@pytest.mark.parametrize("mode", ["none", "relay", "wechat"])
def test_every_way_to_authenticate_can_be_tried_locally(mode: str) -> None:
    load(FOR_TARGET["entry"], local(extra={"AUTH_MODE": mode}))


def test_every_setting_of_the_functions_may_be_given_in_the_shell() -> None:
    names = {field.alias for kind in FOR_TARGET.values() for field in kind.model_fields.values()}
    assert names - {"K_SERVICE"} <= SETTINGS


def test_pool_of_the_seed_is_the_default() -> None:
    """A-177."""
    pool = [
        (key["id"], key["weight"], key["maxConcurrent"], key["quotaDomain"])
        for key in json.loads(local()["GEMINI_API_KEYS"])
    ]
    assert pool == [
        ("key1", 10, 3, "project1"),
        ("key2", 10, 3, "project2"),
        ("key3", 10, 3, "project3"),
        ("key4", 8, 2, "project4"),
    ]


def test_every_embedded_http_server_may_be_reached_although_it_is_private() -> None:
    assert local()["PRIVATE_HOSTS"].split(",") == [f"127.0.0.1:{port}" for port in (9, 10, 11, 7, 8)]


@pytest.mark.parametrize(
    ("given", "real"),
    [
        ({}, set()),
        ({"GEMINI_API_KEYS": KEYS_FOR_REAL}, {"gemini"}),
        ({"OPENAI_API_KEY": "sk"}, {"openai"}),
        # half of COS is not enough: its fake runs
        ({"TENCENT_SECRET_ID": "id", "TENCENT_SECRET_KEY": "key"}, set()),
        (
            {"TENCENT_SECRET_ID": "id", "TENCENT_SECRET_KEY": "key", "TENCENT_COS_BUCKET": "b-1"},
            {"cos"},
        ),
    ],
)
def test_what_has_credentials_is_used_for_real_and_has_no_fake(given: dict[str, str], real: set[str]) -> None:
    assert real_services(given) == real
    wanted = services_to_start(keys=SEED_KEYS, latency=1, jitter=0, given=given)
    assert real.isdisjoint(wanted)


def test_real_credentials_reach_the_functions_and_no_local_address_does() -> None:
    given = {"GEMINI_API_KEYS": KEYS_FOR_REAL, "OPENAI_API_KEY": "sk"}
    settings = local(given)
    assert settings["GEMINI_API_KEYS"] == KEYS_FOR_REAL
    assert settings["OPENAI_API_KEY"] == "sk"
    assert "GOOGLE_GEMINI_BASE_URL" not in settings
    assert "OPENAI_BASE_URL" not in settings
    assert settings["COS_DOMAIN"].startswith("127.0.0.1:11/")


def test_generate_queue_follows_the_slots_of_the_pool() -> None:
    pool = json.dumps([key.as_setting() for key in equal_keys(8, 3)])
    assert slots_of(pool) == 24
    assert {queue.name: queue.max_concurrent_dispatches for queue in local_queues(24)}["generate"] == 40


def test_env_file_is_read_with_comments_quotes_and_export() -> None:
    text = """
# a comment
GEMINI_MODEL = gemini-x
export OPENAI_API_KEY="sk-1"
CALLBACK_SECRET='whsec_a=='
OPENAI_MODEL=
"""
    assert read_env_file(text) == {
        "GEMINI_MODEL": "gemini-x",
        "OPENAI_API_KEY": "sk-1",
        "CALLBACK_SECRET": "whsec_a==",
    }


def test_malformed_line_of_the_env_file_is_named() -> None:
    with pytest.raises(MalformedEnvFile, match="line 2"):
        read_env_file("A=1\nwhat is this\n")


def test_shell_counts_before_the_env_file_and_only_settings_are_taken_from_it() -> None:
    given = given_settings(
        {"GEMINI_MODEL": "from-file"}, {"GEMINI_MODEL": "from-shell", "HOME": "/root", "OPENAI_API_KEY": ""}
    )
    assert given == {"GEMINI_MODEL": "from-shell"}


def test_stray_settings_of_the_shell_do_not_reach_a_function() -> None:
    shell = {"OPENAI_API_KEY": "sk-of-the-shell", "K_SERVICE": "x", "PORT": "1", "PATH": "/bin"}
    environment = process_environment({"AUTH_MODE": "none"}, shell, {"PORT": "2"})
    assert environment["PATH"] == "/bin"
    assert environment["PORT"] == "2"
    assert "OPENAI_API_KEY" not in environment
    assert "K_SERVICE" not in environment


def test_loopback_never_goes_through_a_proxy() -> None:
    environment = process_environment({}, {"HTTP_PROXY": "http://proxy", "no_proxy": "corp,localhost"})
    assert environment["no_proxy"] == environment["NO_PROXY"] == "corp,localhost,127.0.0.1"
