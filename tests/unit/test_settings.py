"""Every function's settings: what is missing or malformed stops the start with one line that names it."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping

import pytest
from pydantic import BaseModel, SecretStr

from shared import bootstrap
from shared.settings import (
    FOR_TARGET,
    AdminSettings,
    BadSetting,
    CompleteSettings,
    EntrySettings,
    GenerateSettings,
    Settings,
    load,
)

COMMON = {
    "GOOGLE_CLOUD_PROJECT": "atelier",
    "GENERATE_URL": "https://generate.example.run.app",
    "COMPLETE_URL": "https://complete.example.run.app",
    "TASKS_SERVICE_ACCOUNT": "tasks@atelier.iam.gserviceaccount.com",
    "TASKS_AUDIENCE": "https://atelier.example",
}
KEYS = [
    {"id": "key1", "key": "AIza-never-show-1", "weight": 10, "maxConcurrent": 3, "quotaDomain": "project1"},
    {"id": "key4", "key": "AIza-never-show-4", "weight": 8, "maxConcurrent": 2},
]
WHSEC = "whsec_" + base64.b64encode(b"a callback secret, 32 bytes long").decode()
ENTRY = COMMON | {
    "AUTH_MODE": "wechat",
    "WECHAT_APPID": "wx1234567890abcdef",
    "WECHAT_SECRET": "wechat-never-show",
    "SESSION_SECRET": "session-never-show-0123456789abcdef",
    "RELAY_SECRET": "relay-never-show-0123456789abcdef",
}
GENERATE = COMMON | {
    "GEMINI_API_KEYS": json.dumps(KEYS),
    "OPENAI_API_KEY": "sk-never-show",
    "TENCENT_SECRET_ID": "AKID-never-show",
    "TENCENT_SECRET_KEY": "tencent-never-show",
    "TENCENT_COS_BUCKET": "lookbook-1250000000",
}
COMPLETE = COMMON | {"CALLBACK_SECRET": WHSEC}
ADMIN = {"GOOGLE_CLOUD_PROJECT": "atelier", "GEMINI_API_KEYS": json.dumps(KEYS)}
KINDS: list[tuple[type[BaseModel], dict[str, str]]] = [
    (EntrySettings, ENTRY),
    (GenerateSettings, GENERATE),
    (CompleteSettings, COMPLETE),
    (AdminSettings, ADMIN),
]
FUNCTIONS: list[tuple[type[Settings], dict[str, str]]] = [
    (EntrySettings, ENTRY),
    (GenerateSettings, GENERATE),
    (CompleteSettings, COMPLETE),
]
SECRETS = ("never-show", WHSEC.removeprefix("whsec_"))


def refusal(kind: type[BaseModel], environment: Mapping[str, str]) -> str:
    """The line that a bad environment ends with."""
    with pytest.raises(BadSetting) as caught:
        load(kind, environment)
    line = str(caught.value)
    assert "\n" not in line
    assert not any(secret in line for secret in SECRETS)
    return line


def keys(**changes: object) -> str:
    return json.dumps([{**KEYS[0], **changes}])


@pytest.mark.parametrize(("kind", "environment"), KINDS)
def test_a_complete_environment_loads(kind: type[BaseModel], environment: dict[str, str]) -> None:
    assert load(kind, environment)


NEEDED = [
    (kind, environment, name)
    for kind, environment, names in [
        (EntrySettings, ENTRY, [*COMMON, "AUTH_MODE"]),
        (
            GenerateSettings,
            GENERATE,
            [*COMMON, "GEMINI_API_KEYS", "TENCENT_SECRET_ID", "TENCENT_SECRET_KEY", "TENCENT_COS_BUCKET"],
        ),
        (CompleteSettings, COMPLETE, [*COMMON, "CALLBACK_SECRET"]),
        (AdminSettings, ADMIN, ["GOOGLE_CLOUD_PROJECT"]),
    ]
    for name in names
]


@pytest.mark.parametrize(("kind", "environment", "name"), NEEDED)
def test_a_missing_setting_is_named(kind: type[BaseModel], environment: dict[str, str], name: str) -> None:
    without = {other: value for other, value in environment.items() if other != name}
    assert refusal(kind, without) == f"{name}: is missing"


@pytest.mark.parametrize(("kind", "environment", "name"), NEEDED)
def test_an_empty_setting_is_a_missing_one(
    kind: type[BaseModel], environment: dict[str, str], name: str
) -> None:
    assert refusal(kind, environment | {name: ""}) == f"{name}: is missing"


@pytest.mark.parametrize(("kind", "environment"), KINDS)
def test_nothing_else_is_needed(kind: type[BaseModel], environment: dict[str, str]) -> None:
    needed = {name for other, _, name in NEEDED if other is kind}
    required = {field.alias for field in kind.model_fields.values() if field.is_required()}
    assert required == needed


MALFORMED_EVERYWHERE = [
    ("GENERATE_URL", "generate.example"),  # no scheme
    ("GENERATE_URL", "ftp://generate.example"),
    ("COMPLETE_URL", "https://"),  # no host
    ("COMPLETE_URL", "http://[::1"),  # half an address
    ("OIDC_JWKS_URL", "certs"),
    ("TASKS_SERVICE_ACCOUNT", "x"),
    ("LOG_LEVEL", "LOUD"),
    ("TASK_DEADLINE_SECONDS", "9"),  # shorter than any picture takes
    ("TASK_DEADLINE_SECONDS", "86401"),
    ("TASK_DEADLINE_SECONDS", "half an hour"),
    ("TASK_DEADLINE_SECONDS", "1800.5"),
    ("KEEP_FINISHED_DAYS", "0"),
]
MALFORMED = [
    *((kind, env, name, value) for kind, env in FUNCTIONS for name, value in MALFORMED_EVERYWHERE),
    (EntrySettings, ENTRY, "AUTH_MODE", "open"),
    (EntrySettings, ENTRY, "SESSION_MINUTES", "4"),
    (EntrySettings, ENTRY, "USER_OPEN_TASKS", "-1"),
    (EntrySettings, ENTRY, "USER_PICTURES_PER_DAY", "many"),
    (EntrySettings, ENTRY, "MAX_EVENT_STREAMS", "0"),
    (EntrySettings, ENTRY, "MAX_BODY_BYTES", "1023"),
    (EntrySettings, ENTRY, "MAX_BODY_BYTES", "1 MB"),
    (GenerateSettings, GENERATE, "GEMINI_TIMEOUT_SECONDS", "0"),
    (GenerateSettings, GENERATE, "GEMINI_TIMEOUT_SECONDS", "nan"),
    (GenerateSettings, GENERATE, "LEASE_SECONDS", "inf"),
    (GenerateSettings, GENERATE, "LEASE_SECONDS", "nan"),
    (GenerateSettings, GENERATE, "SLOT_WAIT_SECONDS", "-1"),
    (GenerateSettings, GENERATE, "UPLOAD_SECONDS", "0"),
    (GenerateSettings, GENERATE, "OPENAI_TIMEOUT_SECONDS", "61"),
    (GenerateSettings, GENERATE, "PICTURE_FORMAT", "gif"),
    (GenerateSettings, GENERATE, "PICTURE_QUALITY", "101"),
    (GenerateSettings, GENERATE, "PICTURE_MAX_EDGE", "255"),
    (GenerateSettings, GENERATE, "PICTURE_URL_DAYS", "0"),
    (GenerateSettings, GENERATE, "TENCENT_COS_BUCKET", "x"),
    (GenerateSettings, GENERATE, "COS_SCHEME", "s3"),
    (CompleteSettings, COMPLETE, "CALLBACK_TIMEOUT_SECONDS", "0"),
    (CompleteSettings, COMPLETE, "CALLBACK_SECRET", "never-show-without-its-prefix"),
    (CompleteSettings, COMPLETE, "CALLBACK_SECRET", "whsec_never-show, not base64"),
    (CompleteSettings, COMPLETE, "CALLBACK_SECRET", "whsec_" + base64.b64encode(b"short").decode()),
]


@pytest.mark.parametrize(("kind", "environment", "name", "value"), MALFORMED)
def test_a_malformed_setting_is_named(
    kind: type[BaseModel], environment: dict[str, str], name: str, value: str
) -> None:
    assert refusal(kind, environment | {name: value}).startswith(f"{name}: ")


BAD_KEYS = [
    ("[never-show", "GEMINI_API_KEYS: is not JSON"),
    ('"never-show"', "GEMINI_API_KEYS: "),
    ("{}", "GEMINI_API_KEYS: "),
    ("[]", "GEMINI_API_KEYS: "),
    ('["never-show"]', "GEMINI_API_KEYS.0: "),
    ('[{"id": "key1"}]', "GEMINI_API_KEYS.0.key: is missing"),
    ('[{"key": "never-show"}]', "GEMINI_API_KEYS.0.id: is missing"),
    (keys(id="a key"), "GEMINI_API_KEYS.0.id: "),
    (keys(id="a/key"), "GEMINI_API_KEYS.0.id: "),  # it becomes a document's name
    (keys(id=""), "GEMINI_API_KEYS.0.id: "),
    (keys(key=["never-show"]), "GEMINI_API_KEYS.0.key: "),
    (keys(key=""), "GEMINI_API_KEYS.0.key: "),
    (keys(weight=0), "GEMINI_API_KEYS.0.weight: "),  # load is divided by it
    (keys(weight="never-show"), "GEMINI_API_KEYS.0.weight: "),
    (keys(maxConcurrent=0), "GEMINI_API_KEYS.0.maxConcurrent: "),
    (keys(maxConcurrent=101), "GEMINI_API_KEYS.0.maxConcurrent: "),
    (keys(quotaDomain="project 1"), "GEMINI_API_KEYS.0.quotaDomain: "),
    (keys(rateLimit=3), "GEMINI_API_KEYS.0.rateLimit: "),  # unknown: a slip of the pen is not ignored
    (json.dumps([KEYS[0], KEYS[1], {**KEYS[1], "id": "key1"}]), "GEMINI_API_KEYS: two keys have the same id"),
]


@pytest.mark.parametrize(("kind", "environment"), [(GenerateSettings, GENERATE), (AdminSettings, ADMIN)])
@pytest.mark.parametrize(("value", "line"), BAD_KEYS)
def test_a_malformed_key_is_named_by_its_place_in_the_list(
    kind: type[BaseModel], environment: dict[str, str], value: str, line: str
) -> None:
    assert refusal(kind, environment | {"GEMINI_API_KEYS": value}).startswith(line)


def test_a_key_has_the_seeds_weight_and_concurrency_unless_it_says_otherwise() -> None:
    (key,) = load(GenerateSettings, GENERATE | {"GEMINI_API_KEYS": '[{"id":"k","key":"s"}]'}).api_keys
    assert (key.weight, key.max_concurrent) == (10, 3)


def test_a_key_without_a_quota_domain_has_one_of_its_own() -> None:
    first, second = load(GenerateSettings, GENERATE).api_keys
    assert (first.domain, second.domain) == ("project1", "key4")


REFUSED_WHEN_DEPLOYED = [
    ("FIRESTORE_EMULATOR_HOST", "127.0.0.1:8080"),
    ("CLOUD_TASKS_EMULATOR_HOST", "127.0.0.1:8123"),
    ("PRIVATE_HOSTS", "127.0.0.1:9000"),
    ("OIDC_JWKS_URL", "http://127.0.0.1:8123/jwks"),
]


@pytest.mark.parametrize(("name", "value"), REFUSED_WHEN_DEPLOYED)
@pytest.mark.parametrize(("kind", "environment"), FUNCTIONS)
def test_what_is_only_for_a_laptop_is_refused_when_deployed(
    kind: type[Settings], environment: dict[str, str], name: str, value: str
) -> None:
    assert load(kind, environment | {name: value})
    line = refusal(kind, environment | {name: value, "K_SERVICE": "lookbook"})
    assert line.startswith(name)
    assert "K_SERVICE" in line


def test_an_open_door_is_refused_when_deployed() -> None:
    open_door = COMMON | {"AUTH_MODE": "none"}
    assert load(EntrySettings, open_door).auth_mode == "none"
    assert refusal(EntrySettings, open_door | {"K_SERVICE": "lookbook"}).startswith("AUTH_MODE")


@pytest.mark.parametrize(("kind", "environment"), FUNCTIONS)
def test_a_plain_deployment_is_accepted(kind: type[Settings], environment: dict[str, str]) -> None:
    assert load(kind, environment | {"K_SERVICE": "lookbook"}).deployed == "lookbook"


@pytest.mark.parametrize("name", ["WECHAT_APPID", "WECHAT_SECRET", "SESSION_SECRET"])
def test_the_wechat_door_needs_the_mini_programs_secrets(name: str) -> None:
    assert refusal(EntrySettings, ENTRY | {name: ""}).startswith(name)


def test_the_relay_door_needs_only_its_own_secret() -> None:
    relay = COMMON | {"AUTH_MODE": "relay", "RELAY_SECRET": ENTRY["RELAY_SECRET"]}
    assert load(EntrySettings, relay).auth_mode == "relay"
    assert refusal(EntrySettings, relay | {"RELAY_SECRET": ""}).startswith("RELAY_SECRET")


@pytest.mark.parametrize(("mode", "name"), [("wechat", "SESSION_SECRET"), ("relay", "RELAY_SECRET")])
def test_a_signing_secret_that_can_be_guessed_is_refused(mode: str, name: str) -> None:
    guessable = "never-show".ljust(31, "x")
    assert refusal(EntrySettings, ENTRY | {"AUTH_MODE": mode, name: guessable}).startswith(name)


@pytest.mark.parametrize("lease", ["119.9", "120"])
def test_a_lease_that_does_not_outlive_the_call_is_refused(lease: str) -> None:
    line = refusal(GenerateSettings, GENERATE | {"GEMINI_TIMEOUT_SECONDS": "120", "LEASE_SECONDS": lease})
    assert line.startswith("LEASE_SECONDS")


def test_the_default_lease_outlives_the_default_call() -> None:
    loaded = load(GenerateSettings, GENERATE)
    assert loaded.lease_seconds > loaded.gemini_timeout_seconds


@pytest.mark.parametrize(
    ("kind", "secrets"),
    [
        (EntrySettings, {"WECHAT_SECRET", "SESSION_SECRET", "RELAY_SECRET"}),
        (
            GenerateSettings,
            {"GEMINI_API_KEYS", "OPENAI_API_KEY", "TENCENT_SECRET_ID", "TENCENT_SECRET_KEY", "WECHAT_SECRET"},
        ),
        (CompleteSettings, {"CALLBACK_SECRET"}),
        (AdminSettings, {"GEMINI_API_KEYS"}),
    ],
)
def test_a_function_asks_for_no_secret_but_its_own(kind: type[BaseModel], secrets: set[str]) -> None:
    asked = {
        field.alias
        for field in kind.model_fields.values()
        if field.annotation is SecretStr or field.alias == "GEMINI_API_KEYS"
    }
    assert asked == secrets


@pytest.mark.parametrize(("kind", "environment"), KINDS)
def test_settings_that_stray_into_a_log_line_show_no_secret(
    kind: type[BaseModel], environment: dict[str, str]
) -> None:
    loaded = load(kind, environment)
    shown = f"{loaded!r} {loaded} {loaded.model_dump()}"
    assert "atelier" in shown
    assert not any(secret in shown for secret in SECRETS)


def test_a_list_of_hosts_is_split_trimmed_and_in_lower_case() -> None:
    loaded = load(EntrySettings, ENTRY | {"SOURCE_HOSTS": " Img.Example.com , *.cdn.example,, "})
    assert loaded.source_hosts == {"img.example.com", "*.cdn.example"}


DEFAULTS = [
    (EntrySettings, ENTRY, "generate_queue", "generate"),
    (EntrySettings, ENTRY, "complete_queue", "complete"),
    (EntrySettings, ENTRY, "events_queue", "events"),
    (EntrySettings, ENTRY, "task_deadline_seconds", 1800),
    (EntrySettings, ENTRY, "source_hosts", frozenset()),
    (EntrySettings, ENTRY, "jwks_url", "https://www.googleapis.com/oauth2/v3/certs"),
    (GenerateSettings, GENERATE, "openai_model", "gpt-4o-mini"),
    (GenerateSettings, GENERATE, "cos_region", "ap-guangzhou"),
    (GenerateSettings, GENERATE, "cos_scheme", "https"),
    (GenerateSettings, GENERATE, "gemini_timeout_seconds", 120),
    (GenerateSettings, GENERATE, "lease_seconds", 150),
    (GenerateSettings, GENERATE, "slot_wait_seconds", 20),
]


@pytest.mark.parametrize(("kind", "environment", "field", "value"), DEFAULTS)
def test_what_is_not_set_has_the_designs_default(
    kind: type[BaseModel], environment: dict[str, str], field: str, value: object
) -> None:
    assert getattr(load(kind, environment), field) == value


def test_every_function_has_its_settings() -> None:
    assert FOR_TARGET["entry"] is EntrySettings
    assert FOR_TARGET["generate"] is GenerateSettings
    assert FOR_TARGET["complete"] is CompleteSettings


@pytest.mark.parametrize(
    ("function", "environment"), [("entry", ENTRY), ("generate", GENERATE), ("complete", COMPLETE)]
)
def test_a_function_that_lacks_a_setting_does_not_start_and_says_why_in_one_line(
    function: str,
    environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("FUNCTION_TARGET", function)
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT")
    with pytest.raises(SystemExit) as ended:
        bootstrap.check_settings(function)
    assert ended.value.code not in (0, None)
    assert capsys.readouterr().err == "lookbook: setting GOOGLE_CLOUD_PROJECT: is missing\n"


def test_a_function_that_is_not_the_one_being_started_needs_no_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FUNCTION_TARGET", "entry")
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT", raising=False)
    bootstrap.check_settings("generate")
