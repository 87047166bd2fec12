"""The archive holds what ships and nothing else, and is the same wherever it is made."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import zipfile
from pathlib import Path

from scripts.package import make_archive, shipped_files
from tests.infra.conftest import ROOT


def test_the_name_carries_the_hash_that_terraform_computes(tmp_path: Path) -> None:
    archive = tmp_path / "a.zip"
    name = make_archive(ROOT, archive)
    assert name == f"lookbook-{hashlib.sha256(archive.read_bytes()).hexdigest()[:16]}.zip"


def test_the_same_sources_give_the_same_bytes(tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere"
    for file in shipped_files(ROOT):
        target = copy / file.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
        target.chmod(0o600)
        os.utime(target, (1, 1))
    (copy / "shared" / "__pycache__").mkdir()
    (copy / "shared" / "__pycache__" / "x.pyc").write_bytes(b"of this machine")
    (copy / "tests").mkdir()
    assert make_archive(ROOT, tmp_path / "a.zip") == make_archive(copy, tmp_path / "b.zip")


def test_a_changed_source_changes_the_name(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("1")
    before = make_archive(tmp_path, tmp_path / "a.zip")
    (tmp_path / "main.py").write_text("2")
    assert make_archive(tmp_path, tmp_path / "a.zip") != before


def test_only_what_the_functions_need_is_shipped(tmp_path: Path) -> None:
    make_archive(ROOT, tmp_path / "a.zip")
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        names = archive.namelist()
    assert {name.split("/")[0] for name in names} == {"main.py", "requirements.txt", "functions", "shared"}
    assert all(name.endswith((".py", ".txt")) for name in names), names


def test_every_shipped_package_is_pinned_with_its_hashes() -> None:
    for file in (
        ROOT / "requirements.txt",
        ROOT / "requirements-dev.txt",
        *(ROOT / "infra").glob("*-requirements.txt"),
        *(ROOT / "tests" / "infra").glob("*-requirements.txt"),
    ):
        blocks = re.split(r"\n(?=[a-z])", file.read_text().strip())
        loose = [block.split()[0] for block in blocks if "==" not in block or "--hash=sha256:" not in block]
        assert loose == [], file.name
