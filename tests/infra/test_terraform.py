"""terraform's own checks of infra/terraform, and the proof that they catch mistakes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.infra.conftest import INFRA, MODULE, Terraform, TestRun

ROOTS = ("", "environments/dev", "environments/prod", "bootstrap")


def test_the_files_are_formatted(terraform: Terraform) -> None:
    done = terraform.run(MODULE, "fmt", "-check", "-recursive", "-diff")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("root", ROOTS)
def test_every_root_is_valid(terraform: Terraform, root: str) -> None:
    done = terraform.run(MODULE / root, "validate")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_properties_hold(tested: TestRun) -> None:
    assert tested.passed, tested.output
    assert "deployed" in tested.deployments


def test_both_environments_take_the_same_variables() -> None:
    for name in ("variables.tf", "outputs.tf"):
        dev, prod = (MODULE / "environments" / environment / name for environment in ("dev", "prod"))
        assert dev.read_text() == prod.read_text(), name


EXAMPLE = """
mock_provider "google" {
  mock_data "google_project" {
    defaults = { number = "123456789012" }
  }
  mock_resource "google_monitoring_dashboard" {
    defaults = { id = "projects/123456789012/dashboards/made-up" }
  }
}

override_data {
  target = module.lookbook.data.google_cloud_run_v2_service.generate
  values = { urls = ["https://lookbook-generate-123456789012.asia-east1.run.app"] }
}

override_data {
  target = module.lookbook.data.google_cloud_run_v2_service.complete
  values = { urls = ["https://lookbook-complete-123456789012.asia-east1.run.app"] }
}

variables {
  archive = "terraform.tfvars"
}

run "example" {}
"""


@pytest.mark.parametrize("environment", ["dev", "prod"])
def test_the_example_variables_are_enough_to_apply_with(
    terraform: Terraform, environment: str, tmp_path: Path
) -> None:
    folder = _copy(tmp_path) / "environments" / environment
    for name in ("terraform.tfvars", "secrets.auto.tfvars"):
        shutil.copy(folder / f"{name}.example", folder / name)
    (folder / "example.tftest.hcl").write_text(EXAMPLE)
    done = terraform.run(folder, "test")
    assert "1 passed, 0 failed" in done.stdout, done.stdout + done.stderr


MISTAKES = [
    # (file, what is there, what is written instead, what terraform says)
    ("queues.tf", "max_dispatches_per_second =", "max_dispatches_per_minute =", "Unsupported argument"),
    ("queues.tf", "  location = var.region\n", "", 'The argument "location" is required'),
    ("queues.tf", "retry_count = 0", 'retry_count = "often"', "a number is required"),
    (
        "queues.tf",
        '"google_cloud_tasks_queue" "main"',
        '"google_cloud_task_queue" "main"',
        "Invalid resource type",
    ),
    (
        "queues.tf",
        "google_service_account.tasks.email",
        "google_service_account.tasks.mail",
        "Unsupported attribute",
    ),
    (
        "archive.tf",
        "  versioning {",
        "  versioning {\n    enabled = true\n  }\n  versioning {",
        "Too many versioning",
    ),
    ("secrets.tf", "secret_data_wo  ", "secret_data  ", "phemeral"),
    (
        "identity.tf",
        "google_service_account.tasks.member",
        "google_service_account.task.member",
        "undeclared resource",
    ),
]


@pytest.mark.parametrize(("file", "right", "wrong", "complaint"), MISTAKES, ids=lambda value: str(value)[:30])
def test_a_planted_mistake_is_caught(
    terraform: Terraform, tmp_path: Path, file: str, right: str, wrong: str, complaint: str
) -> None:
    copy = _copy(tmp_path)
    _plant(copy / file, right, wrong)
    done = terraform.run(copy, "validate")
    assert done.returncode != 0
    assert complaint in done.stderr.replace("\n", " "), done.stderr


BREACHES = [
    # (file, what is there, what is written instead, the property that is hurt)
    ("identity.tf", '.main["entry"].name', '.main["generate"].name', "Only entry is public"),
    ("identity.tf", "roles/datastore.user", "roles/editor", "No account has a basic"),
    ("functions.tf", '["CALLBACK_SECRET"]', '["OPENAI_API_KEY"]', "just the functions that need it"),
    ("functions.tf", "function[each.key].email", 'function["entry"].email', "an account of its own"),
    ("locals.tf", "sum(values(var.key_pool))", "length(var.key_pool)", "comes from the number of slots"),
    ("firestore.tf", "DELETE_PROTECTION_ENABLED", "DELETE_PROTECTION_DISABLED", "protected from deletion"),
    ("archive.tf", "= local.archive", '= "lookbook.zip"', "carries its hash"),
    ("queues.tf", "${local.urls.complete}/sweep", "${local.urls.generate}/sweep", "sweeps through complete"),
]


def test_planted_breaches_of_the_properties_are_caught(terraform: Terraform, tmp_path: Path) -> None:
    copy = _copy(tmp_path)
    for file, right, wrong, _ in BREACHES:
        _plant(copy / file, right, wrong)
    done = terraform.run(copy, "test")
    told = " ".join((done.stdout + done.stderr).split())
    assert [breach for *_, breach in BREACHES if breach not in told] == [], done.stdout + done.stderr


def _copy(folder: Path) -> Path:
    shutil.copytree(INFRA, folder / "infra", ignore=shutil.ignore_patterns(".terraform*", "*.tfvars"))
    return folder / "infra" / "terraform"


def _plant(file: Path, right: str, wrong: str) -> None:
    text = file.read_text()
    assert right in text
    file.write_text(text.replace(right, wrong))
