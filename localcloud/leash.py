"""Becomes another program that ends when the supervisor ends, even by kill -9.

Run as a script by the supervisor. The kernel's parent-death signal survives exec, so it is set here, in a
fresh process, rather than between fork and exec of one that has threads and gRPC channels.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    supervisor, death_signal, command = int(sys.argv[1]), signal.Signals[sys.argv[2]], sys.argv[3:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, death_signal)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if os.getppid() != supervisor:
        sys.exit("the supervisor ended before its child began")
    os.execvp(command[0], command)  # noqa: S606


if __name__ == "__main__":
    main()
