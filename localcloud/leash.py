"""Runs another program, and ends it with everything it has started when the supervisor ends, even by kill -9.

Run as a script by the supervisor, as the leader of a process group of its own. The kernel tells it of the
supervisor's death; it then kills the group. (The program itself can't be told that way: gunicorn takes half a
minute over it.) The signal is asked for here, in a fresh process, rather than between fork and exec of one that
has threads and gRPC channels.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys

PR_SET_PDEATHSIG = 1


def end_group(*_: object) -> None:
    os.killpg(os.getpgrp(), signal.SIGKILL)


def main() -> None:
    supervisor, command = int(sys.argv[1]), sys.argv[2:]
    signal.signal(signal.SIGTERM, end_group)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if os.getppid() != supervisor:
        sys.exit("the supervisor ended before its child began")
    code = subprocess.Popen(command).wait()
    sys.exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
