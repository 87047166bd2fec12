"""Terraform and the code say the same: settings, secrets, queues, time-outs, words in the log, runbook."""

from __future__ import annotations

import ast
import json
import math
import re
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import SecretStr

from localcloud import environment
from shared import settings
from shared.adapters.cloud_tasks import Bell
from shared.flow import follow
from shared.settings import FOR_TARGET, GenerateSettings, load
from tests.infra.conftest import INFRA, ROOT, Deployment, TestRun, read_json

FUNCTIONS = tuple(FOR_TARGET)
QUEUES = read_json(INFRA / "queues.json")
RUNBOOK = ROOT / "docs" / "operations.md"

LOCAL = {
    "CLOUD_TASKS_EMULATOR_HOST",
    "COS_DOMAIN",
    "COS_SCHEME",
    "FIRESTORE_EMULATOR_HOST",
    "GOOGLE_GEMINI_BASE_URL",
    "OIDC_JWKS_URL",
    "OPENAI_BASE_URL",
    "PATIENCE",
    "PRIVATE_HOSTS",
    "WECHAT_BASE_URL",
}
"""Where things are on a laptop; deployed, they are where they always are."""
GOOGLES = {"K_SERVICE"}
"""Set by Google."""
MADE_UP = {
    "CALLBACK_SECRET": environment.CALLBACK_SECRET,
    "GEMINI_API_KEYS": json.dumps([{"id": "key1", "key": "made up", "maxConcurrent": 3}]),
}


@pytest.fixture
def deployed(tested: TestRun) -> Deployment:
    return tested.deployments["deployed"]


def service_config(deployment: Deployment, function: str) -> dict[str, Any]:
    config: dict[str, Any] = deployment.of("google_cloudfunctions2_function")[function]["service_config"][0]
    return config


def secrets_of(deployment: Deployment, function: str) -> set[str]:
    return {secret["key"] for secret in service_config(deployment, function)["secret_environment_variables"]}


def given_to(deployment: Deployment, function: str) -> dict[str, str]:
    """The environment of a function, with secrets made up."""
    plain: dict[str, str] = service_config(deployment, function)["environment_variables"]
    secret = {name: MADE_UP.get(name, "made up, " * 5) for name in secrets_of(deployment, function)}
    return {**plain, **secret, "K_SERVICE": f"lookbook-{function}"}


def named(kind: type[settings.Settings]) -> set[str]:
    return {str(field.alias) for field in kind.model_fields.values()}


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("run", ["deployed", "relay_needs_no_session_secret"])
def test_each_function_starts_with_the_settings_it_is_given(tested: TestRun, run: str, function: str) -> None:
    load(FOR_TARGET[function], given_to(tested.deployments[run], function))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_each_function_is_given_only_what_it_asks_for(tested: TestRun, function: str) -> None:
    for run, deployment in tested.deployments.items():
        strange = set(given_to(deployment, function)) - named(FOR_TARGET[function])
        assert strange == set(), f"{run}: {function} does not know {strange}"


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_setting_can_be_set_through_terraform(function: str) -> None:
    text = (INFRA / "terraform" / "functions.tf").read_text()
    missing = {
        name for name in named(FOR_TARGET[function]) - LOCAL - GOOGLES if not re.search(rf"\b{name}\b", text)
    }
    assert missing == set(), f"infra/terraform/functions.tf does not give {function}: {missing}"


@pytest.mark.parametrize("function", FUNCTIONS)
def test_secrets_and_nothing_else_come_from_secret_manager(tested: TestRun, function: str) -> None:
    secret = {
        str(field.alias)
        for field in FOR_TARGET[function].model_fields.values()
        if field.annotation is SecretStr or field.alias == "GEMINI_API_KEYS"
    }
    for deployment in tested.deployments.values():
        assert secrets_of(deployment, function) <= secret
        assert not secret & set(service_config(deployment, function)["environment_variables"])


def test_the_defaults_of_the_module_are_those_of_the_code(deployed: Deployment) -> None:
    for function in FUNCTIONS:
        given = given_to(deployed, function)
        for field in FOR_TARGET[function].model_fields.values():
            name = str(field.alias)
            if name not in given or field.is_required() or field.annotation not in (int, float, str):
                continue
            if name in {"WECHAT_APPID", "WECHAT_ENV", "CLOUD_FUNCTION_CALLBACK_URL", "K_SERVICE"}:
                continue
            assert field.annotation(given[name]) == field.default, name


def test_the_time_outs_nest(deployed: Deployment) -> None:
    generate = load(GenerateSettings, given_to(deployed, "generate"))
    assert generate.gemini_timeout_seconds < generate.lease_seconds
    busy = generate.slot_wait_seconds + generate.lease_seconds + generate.upload_seconds
    assert (
        busy < service_config(deployed, "generate")["timeout_seconds"] < QUEUES["dispatch_deadline_seconds"]
    )
    assert follow._LONGEST.total_seconds() < service_config(deployed, "entry")["timeout_seconds"]


def test_the_code_dispatches_with_the_deadline_of_the_queues() -> None:
    assert Bell.__dataclass_fields__["dispatch_seconds"].default == QUEUES["dispatch_deadline_seconds"]


def test_a_function_accepts_the_tokens_that_its_queues_send(deployed: Deployment) -> None:
    for name, queue in deployed.of("google_cloud_tasks_queue").items():
        called = QUEUES["queues"][name]["function"]
        token = queue["http_target"][0]["oidc_token"][0]
        loaded = load(FOR_TARGET[called], given_to(deployed, called))
        assert token["audience"] == loaded.tasks_audience
        assert token["service_account_email"] == loaded.tasks_service_account


def test_the_code_uses_queues_that_exist(deployed: Deployment) -> None:
    for function in FUNCTIONS:
        loaded = load(FOR_TARGET[function], given_to(deployed, function))
        used = {loaded.generate_queue, loaded.bulk_queue, loaded.complete_queue, loaded.events_queue}
        assert used == set(QUEUES["queues"])


def test_the_embedded_cloud_has_the_same_queues(deployed: Deployment) -> None:
    made = deployed.of("google_cloud_tasks_queue")
    assert set(made) == set(QUEUES["queues"])
    local = {queue.name: queue for queue in environment.local_queues(11)}
    for name in made:
        limits, retry = made[name]["rate_limits"][0], made[name]["retry_config"][0]
        assert limits["max_concurrent_dispatches"] == local[name].max_concurrent_dispatches, name
        assert retry["min_backoff"] == f"{local[name].min_backoff_seconds:g}s", name
        assert retry["max_backoff"] == f"{local[name].max_backoff_seconds:g}s", name
        assert retry["max_doublings"] == local[name].max_doublings, name
        # Firestore says when a shot has had enough; a queue that gives up would lose wake-ups.
        assert retry["max_attempts"] == -1, name


@pytest.mark.parametrize("slots", [1, 11, 24, 1000])
def test_more_is_dispatched_than_there_are_slots(slots: int) -> None:
    figures = QUEUES["queues"]["generate"]["max_concurrent"]
    assert math.ceil(slots * figures["per_slot"]) + figures["plus"] > slots


def words_of_the_code() -> dict[str, set[str] | None]:
    """Word of a log line → the fields it always has; none where the call hands on a mapping."""
    found: dict[str, set[str] | None] = {}
    for file in (*(ROOT / "shared").rglob("*.py"), *(ROOT / "functions").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
                continue
            word = node.args[0]
            if ast.unparse(node.func.value) != "log" or not isinstance(word, ast.Constant):
                continue
            names = {keyword.arg for keyword in node.keywords}
            plain = {name for name in names if name is not None}
            known = found.get(str(word.value), plain)
            found[str(word.value)] = None if None in names or known is None else known & plain
    return found


def test_every_metric_counts_a_word_that_the_code_says(deployed: Deployment) -> None:
    words = words_of_the_code()
    for name, metric in deployed.of("google_logging_metric").items():
        word = re.search(r'jsonPayload\.message="([\w.]+)"', metric["filter"])
        assert word is not None and word[1] in words, f"{name}: the code never says {word and word[1]}"
        told = words[word[1]]
        wanted = [*(metric["label_extractors"] or {}), *_measured(metric)]
        assert told is None or set(wanted) <= told, f"{name}: {word[1]} does not tell {wanted}"


def _measured(metric: dict[str, Any]) -> list[str]:
    if metric["metric_descriptor"][0]["value_type"] != "DISTRIBUTION":
        return []
    field = re.fullmatch(r"EXTRACT\(jsonPayload\.(\w+)[\w.]*\)", metric["value_extractor"])
    assert field is not None
    return [field[1]]


def test_every_chart_and_alert_asks_for_metrics_that_exist(deployed: Deployment) -> None:
    made = {
        f"user_{metric['name'].replace('/', '_')}" for metric in deployed.of("google_logging_metric").values()
    }
    queries = [
        line["timeSeriesQuery"]["prometheusQuery"]
        for dashboard in deployed.of("google_monitoring_dashboard").values()
        for tile in json.loads(dashboard["dashboard_json"])["mosaicLayout"]["tiles"]
        for line in tile["widget"]["xyChart"]["dataSets"]
    ]
    for policy in deployed.of("google_monitoring_alert_policy").values():
        queries.append(policy["conditions"][0]["condition_prometheus_query_language"][0]["query"])
    asked = {name for query in queries for name in re.findall(r"logging_googleapis_com:(\w+)", query)}
    assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in asked} <= made
    for query in queries:
        assert query.count("(") == query.count(")") and query.count("{") == query.count("}"), query


def test_every_alert_has_its_section_in_the_runbook(deployed: Deployment) -> None:
    text = RUNBOOK.read_text()
    described = set(re.findall(r"^### `([\w-]+)`$", text, flags=re.MULTILINE))
    assert described == set(deployed.of("google_monitoring_alert_policy"))
    for section in re.split(r"^### ", text, flags=re.MULTILINE)[1:]:
        assert "**Look**" in section and "**Do**" in section, section[:60]


def test_the_runtime_is_the_python_that_the_tests_run_on(deployed: Deployment) -> None:
    pinned = re.search(r'python_version = "(\d)\.(\d+)"', (ROOT / "pyproject.toml").read_text())
    assert pinned is not None
    for function in deployed.of("google_cloudfunctions2_function").values():
        assert function["build_config"][0]["runtime"] == f"python{pinned[1]}{pinned[2]}"


def test_the_auth_modes_are_those_of_the_code_but_for_the_open_one() -> None:
    modes = get_args(settings.EntrySettings.model_fields["auth_mode"].annotation)
    text = Path(INFRA / "terraform" / "variables.tf").read_text()
    assert 'contains(["wechat", "relay"], var.auth_mode)' in text
    assert set(modes) == {"wechat", "relay", "none"}
