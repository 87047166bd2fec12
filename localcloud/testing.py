"""Firestore and Cloud Tasks for the tests of any project, in two lines of its conftest.py or of a test:

    pytest_plugins = ["localcloud.testing"]

    def test_it(firestore_emulator, cloud_tasks_emulator): ...

Each emulator is one process for the whole run. A test gets a Google project of its own in it, so that no test
sees another's documents or queues, and the environment variables that point Google's libraries there.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from google.cloud.firestore import AsyncClient, Client
    from google.cloud.tasks_v2 import CloudTasksAsyncClient, CloudTasksClient

_ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True, kw_only=True)
class FirestoreEmulator:
    address: str
    """host:port, as in FIRESTORE_EMULATOR_HOST."""
    project: str

    def client(self) -> Client:
        from google.cloud.firestore import Client

        return Client(project=self.project)

    def async_client(self) -> AsyncClient:
        """To be made inside the loop that uses it."""
        from google.cloud.firestore import AsyncClient

        return AsyncClient(project=self.project)


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudTasksEmulator:
    address: str
    """host:port, as in CLOUD_TASKS_EMULATOR_HOST."""
    jwks_url: str
    """Where the keys are that the tasks' OIDC tokens verify against."""
    project: str
    location: str = "us-central1"

    @property
    def parent(self) -> str:
        """What CreateQueue and ListQueues ask for."""
        return f"projects/{self.project}/locations/{self.location}"

    def queue_path(self, queue: str) -> str:
        return f"{self.parent}/queues/{queue}"

    def client(self) -> CloudTasksClient:
        import grpc
        from google.cloud.tasks_v2 import CloudTasksClient
        from google.cloud.tasks_v2.services.cloud_tasks.transports import CloudTasksGrpcTransport

        channel = grpc.insecure_channel(self.address, _NO_PROXY)
        return CloudTasksClient(transport=CloudTasksGrpcTransport(channel=channel))

    def async_client(self) -> CloudTasksAsyncClient:
        """To be made inside the loop that uses it."""
        import grpc.aio
        from google.cloud.tasks_v2 import CloudTasksAsyncClient
        from google.cloud.tasks_v2.services.cloud_tasks.transports import CloudTasksGrpcAsyncIOTransport

        channel = grpc.aio.insecure_channel(self.address, _NO_PROXY)
        return CloudTasksAsyncClient(transport=CloudTasksGrpcAsyncIOTransport(channel=channel))


_NO_PROXY = [("grpc.enable_http_proxy", 0)]


@pytest.fixture(scope="session")
def localcloud_firestore_process() -> Iterator[Mapping[str, str]]:
    with running("firestore", lines=1) as told:
        yield told


@pytest.fixture(scope="session")
def localcloud_tasks_process() -> Iterator[Mapping[str, str]]:
    with running("tasks", lines=2) as told:
        yield told


@pytest.fixture
def firestore_emulator(
    localcloud_firestore_process: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> FirestoreEmulator:
    """An empty Firestore: a project that nobody else has."""
    project = _project(monkeypatch)
    address = localcloud_firestore_process["FIRESTORE_EMULATOR_HOST"]
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", address)
    return FirestoreEmulator(address=address, project=project)


@pytest.fixture
def cloud_tasks_emulator(
    localcloud_tasks_process: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> CloudTasksEmulator:
    """A Cloud Tasks with no queues: a project that nobody else has."""
    project = _project(monkeypatch)
    address = localcloud_tasks_process["CLOUD_TASKS_EMULATOR_HOST"]
    monkeypatch.setenv("CLOUD_TASKS_EMULATOR_HOST", address)
    return CloudTasksEmulator(
        address=address, jwks_url=localcloud_tasks_process["OIDC_JWKS_URL"], project=project
    )


@contextlib.contextmanager
def running(service: str, *options: str, lines: int) -> Iterator[dict[str, str]]:
    """One emulator as a process that ends with us, whatever we die of; the environment lines it tells."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")])),
    }
    with subprocess.Popen(
        [sys.executable, "-m", "localcloud", service, "--port", "0", "--on-a-pipe", *options],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            told = [process.stdout.readline() for _ in range(lines)] if process.stdout else []
            if not all(line.endswith("\n") for line in told):
                raise RuntimeError(f"localcloud {service} did not start; its reason is on stderr")
            yield dict(line.strip().split("=", 1) for line in told)
        finally:
            process.terminate()


def _project(monkeypatch: pytest.MonkeyPatch) -> str:
    """The same for both emulators of one test."""
    known = os.environ.get("GOOGLE_CLOUD_PROJECT", "")
    if known.startswith(_PREFIX):
        return known
    project = f"{_PREFIX}{uuid.uuid4().hex[:12]}"
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", project)
    return project


_PREFIX = "test-localcloud-"
