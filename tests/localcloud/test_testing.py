"""The fixtures of `localcloud.testing`, used the way another project would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

THEIRS = """
import asyncio
import os
import urllib.request
import json

import pytest
from google.cloud import firestore


def test_documents_are_written_and_read(firestore_emulator):
    assert os.environ["FIRESTORE_EMULATOR_HOST"] == firestore_emulator.address
    client = firestore_emulator.client()
    client.document("cities/a").set({"name": "A"})
    assert [found.id for found in client.collection("cities").stream()] == ["a"]


def test_the_next_test_begins_with_nothing(firestore_emulator, cloud_tasks_emulator):
    assert list(firestore.Client().collection("cities").stream()) == []
    assert firestore_emulator.project == cloud_tasks_emulator.project
    client = cloud_tasks_emulator.client()
    assert list(client.list_queues(parent=cloud_tasks_emulator.parent)) == []
    client.create_queue(
        parent=cloud_tasks_emulator.parent, queue={"name": cloud_tasks_emulator.queue_path("q")}
    )
    keys = json.load(urllib.request.urlopen(cloud_tasks_emulator.jwks_url))
    assert keys["keys"]


def test_queues_of_another_test_are_not_there(cloud_tasks_emulator):
    async def names():
        client = cloud_tasks_emulator.async_client()
        async with client:
            queues = await client.list_queues(parent=cloud_tasks_emulator.parent)
            return [queue.name async for queue in queues]

    assert asyncio.run(names()) == []


def test_async_firestore_works_too(firestore_emulator):
    async def use():
        client = firestore_emulator.async_client()
        await client.document("cities/b").set({"name": "B"})
        return (await client.document("cities/b").get()).to_dict()

    assert asyncio.run(use()) == {"name": "B"}


def test_without_the_fixtures_nothing_is_set():
    assert "FIRESTORE_EMULATOR_HOST" not in os.environ
"""


def test_another_project_uses_both_emulators_with_two_lines(tmp_path):
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["localcloud.testing"]\n', "utf-8")
    (tmp_path / "test_theirs.py").write_text(THEIRS, "utf-8")
    unset = {"FIRESTORE_EMULATOR_HOST", "CLOUD_TASKS_EMULATOR_HOST", "GOOGLE_CLOUD_PROJECT"}
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(tmp_path)],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(ROOT), "no_proxy": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "5 passed" in ran.stdout, ran.stdout + ran.stderr
