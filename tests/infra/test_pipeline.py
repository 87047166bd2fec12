"""cloudbuild.yaml and the targets of the manual: complete, in order, and without a secret."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import yaml  # type: ignore[import-untyped]

from shared.settings import FOR_TARGET
from tests.infra.conftest import MODULE, ROOT

BUILD: dict[str, Any] = yaml.safe_load((ROOT / "cloudbuild.yaml").read_text())
STEPS = {step["id"]: step for step in BUILD["steps"]}


def before(step: str) -> set[str]:
    """Every step that has ended when this one begins."""
    direct = {name for name in STEPS[step].get("waitFor", []) if name != "-"}
    return direct.union(*(before(name) for name in direct))


def test_nothing_is_applied_that_was_not_checked_tested_packed_and_planned() -> None:
    assert {"check", "test", "package", "plan"} <= before("apply")
    assert "apply" in before("smoke")


def test_only_an_apply_build_applies() -> None:
    for name in ("apply", "smoke"):
        assert 'if [ "$ACTION" != apply ]' in STEPS[name]["script"]
    assert BUILD["substitutions"]["_ACTION"] == "plan"


def test_a_failed_smoke_test_goes_back_to_the_former_archive() -> None:
    assert "former_archive=$former" in STEPS["smoke"]["script"]
    assert STEPS["smoke"]["script"].rstrip().endswith("exit 1")


def test_prod_is_applied_only_with_an_approval() -> None:
    triggers = (MODULE / "bootstrap" / "main.tf").read_text()
    prod = triggers.split("prod = {")[1]
    assert re.search(r"apply = \{[^}]*approval = true", prod)
    assert "approval_required = each.value.approval" in triggers


def test_every_script_is_good_bash() -> None:
    for name, step in STEPS.items():
        if "script" in step:
            done = subprocess.run(
                ["bash", "-n"], input=step["script"], capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{name}: {done.stderr}"
            assert "set -euo pipefail" in step["script"], name


def test_builds_know_no_secret() -> None:
    text = (ROOT / "cloudbuild.yaml").read_text()
    secrets = {
        str(field.alias)
        for kind in FOR_TARGET.values()
        for field in kind.model_fields.values()
        if "SECRET" in str(field.alias) or "API_KEY" in str(field.alias)
    }
    assert [name for name in secrets if re.search(rf"\b{name}\b", text)] == []
    assert "availableSecrets" not in BUILD and "secretEnv" not in text
    assert "TF_VAR_secret_values={}" in BUILD["options"]["env"]


def test_every_target_that_the_manual_names_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    targets |= set(
        re.findall(r"^([a-z-]+):", (ROOT / "infra" / "targets.mk").read_text(), flags=re.MULTILINE)
    )
    manual = (ROOT / "docs" / "operations.md").read_text()
    commands = re.findall(r"(?:^|`)make (.*)", manual, flags=re.MULTILINE)
    commands += re.findall(
        r"^make (.*)", STEPS["check"]["script"] + STEPS["test"]["script"], flags=re.MULTILINE
    )
    assert len(commands) >= 5
    for command in commands:
        named = re.match(r"(?:-C \S+ )?((?:[a-z-]+ ?)+)", command)
        assert named is not None and set(named[1].split()) <= targets, command
