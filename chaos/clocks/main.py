"""The three functions as they are, but with clocks that a storm can set wrong, each process its own.

By how many seconds is in the file that `STORM_CLOCKS` names: process id → seconds.
"""

import json
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from functions.complete.main import complete
from functions.entry.main import entry
from functions.generate.main import generate
from shared.clock import SystemClock

__all__ = ["complete", "entry", "generate"]

_wrong = Path(os.environ["STORM_CLOCKS"])


def _now(_: SystemClock) -> datetime:
    by = json.loads(_wrong.read_bytes()).get(str(os.getpid()), 0)
    return datetime.now(UTC) + timedelta(seconds=by)


setattr(SystemClock, "now", _now)  # noqa: B010 - an assignment would not pass the type check
