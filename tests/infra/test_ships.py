"""What ships, boots: the archive alone, with the packages of its own requirements.txt alone, completes a task."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from google.cloud.firestore import AsyncClient

from scripts.package import make_archive
from scripts.smoke import look
from tests.flows.embedded import System, embedded
from tests.infra.conftest import MODULE, ROOT, read_json

ENVIRONMENT = ROOT / ".venv-shipped"


@pytest.fixture
def unpacked(tmp_path: Path) -> Path:
    make_archive(ROOT, tmp_path / "lookbook.zip")
    with zipfile.ZipFile(tmp_path / "lookbook.zip") as archive:
        archive.extractall(tmp_path / "lookbook")
    return tmp_path / "lookbook"


@pytest.fixture
def shipped_python(unpacked: Path) -> Path:
    """An interpreter that has the archive's packages and no others; kept from one run to the next."""
    assert (unpacked / "requirements.txt").read_bytes() == (ROOT / "requirements.txt").read_bytes()
    subprocess.run([ROOT / "scripts" / "tool-env", ENVIRONMENT, "requirements.txt"], check=True, cwd=ROOT)
    return ENVIRONMENT / "bin" / "python"


async def test_the_archive_alone_completes_a_task(
    unpacked: Path, shipped_python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The embedded cloud stays in this process, so that only the functions (and `keys sync`) run on that interpreter.
    monkeypatch.setattr(sys, "executable", str(shipped_python))
    async with embedded(source=unpacked, in_process=True, settings={"AUTH_MODE": "wechat"}) as system:
        await _sign_in(system)
        task = await system.wait_final(await system.submit(count=2))
        assert (task["status"], len(task["results"])) == ("completed", 2)
        await system.wait_callbacks(task["taskId"], 3)
        await _firestore_is_as_declared(system, monkeypatch)
        told = await asyncio.to_thread(lambda: list(look(**system.supervisor.urls)))
        assert [what for what, is_right, _ in told if not is_right] == []


async def _sign_in(system: System) -> None:
    answer = await system.http.post(f"{system.entry}/session", json={"code": "a-login-code"})
    assert answer.status_code == 200, answer.text
    system.http.headers["authorization"] = f"Bearer {answer.json()['token']}"


async def _firestore_is_as_declared(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """Firestore's TTL deletes a document by its `expireAt`; one without stays for ever."""
    indexes = read_json(MODULE / "indexes.json")
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", system.addresses.firestore)
    database = AsyncClient(project=system.supervisor.settings["GOOGLE_CLOUD_PROJECT"])
    found = {collection.id async for collection in database.collections()}
    eternal = {
        group
        for group in indexes["ttl"]
        async for document in database.collection_group(group).stream()
        if "expireAt" not in (document.to_dict() or {})
    }
    await database._firestore_api.transport.close()
    assert found <= set(indexes["collections"]), (
        "infra/terraform/indexes.json does not know these collections"
    )
    assert not eternal, "a TTL is declared, but these documents have no expireAt"
