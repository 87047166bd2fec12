"""A setting that is missing or malformed stops the start with one line that names it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest

from localcloud.environment import process_environment
from localcloud.supervisor import PROJECT_ROOT
from tests.flows.embedded import System


@pytest.mark.parametrize(
    ("function", "changed", "named"),
    [
        ("entry", {"AUTH_MODE": ""}, "AUTH_MODE"),
        ("entry", {"AUTH_MODE": "wechat", "SESSION_SECRET": "short"}, "SESSION_SECRET"),
        ("entry", {"K_SERVICE": "entry"}, "refused when K_SERVICE is set"),
        ("generate", {"GEMINI_API_KEYS": "not json"}, "GEMINI_API_KEYS"),
        ("generate", {"LEASE_SECONDS": "1"}, "LEASE_SECONDS"),
        ("complete", {"CALLBACK_SECRET": "plain"}, "CALLBACK_SECRET"),
        ("complete", {"GENERATE_URL": "nowhere"}, "GENERATE_URL"),
    ],
)
async def test_a_bad_setting_stops_the_start(
    api: System, function: str, changed: dict[str, str], named: str
) -> None:
    environment = process_environment({**api.supervisor.settings, **changed}, os.environ)
    ended = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "functions_framework", "--target", function, "--port", "0"],
        cwd=PROJECT_ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert ended.returncode != 0
    told = [line for line in ended.stderr.splitlines() if line.startswith("lookbook:")]
    assert len(told) == 1
    assert named in told[0]
    assert "Traceback" not in ended.stderr
    for secret in ("not json", "short", "plain"):
        assert secret not in told[0]
