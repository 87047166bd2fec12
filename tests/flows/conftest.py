"""One system for all flows that need nothing special; tests that do start their own with `embedded(...)`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.flows.embedded import System, embedded

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The shared system belongs to the session's loop, so the tests of this directory run in that one."""
    for item in items:
        if HERE in item.path.parents and pytest_asyncio.is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_system() -> AsyncIterator[System]:
    async with embedded() as system:
        yield system


@pytest_asyncio.fixture(loop_scope="session")
async def system(shared_system: System) -> AsyncIterator[System]:
    """The shared system, well-behaved and with its counts at zero."""
    await shared_system.behave()
    await shared_system.forget_stats()
    yield shared_system
    shared_system.supervisor.check()
