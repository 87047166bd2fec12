"""The functions over HTTP while nobody draws: Cloud Tasks stands still, and what was enqueued can be counted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from localcloud.queues import pause_queues
from tests.flows.embedded import System, embedded

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents and pytest_asyncio.is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def still_system() -> AsyncIterator[System]:
    async with embedded() as system:
        await pause_queues(system.addresses.tasks)
        yield system


@pytest_asyncio.fixture(loop_scope="session")
async def api(still_system: System) -> AsyncIterator[System]:
    await still_system.behave()
    for service in ("firestore", "tasks"):
        await still_system.supervisor.service(service).count_anew()
    yield still_system
    still_system.supervisor.check()
