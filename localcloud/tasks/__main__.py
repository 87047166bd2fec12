"""`python -m localcloud.tasks`: the same as `python -m localcloud tasks`."""

import sys

from localcloud.cli import main

raise SystemExit(main(["tasks", *sys.argv[1:]]))
