"""Looks at a deployment from outside: the public door is open, and nothing else is.

Run after each apply. It makes no task and costs nothing; `python -m shared.admin doctor` looks deeper.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

_REFUSED = (401, 403, 404)
"""By our own check, by IAM, by ingress."""


def answer(method: str, url: str, body: bytes | None = None) -> int:
    """The status of the answer; 0 when there is none."""
    request = Request(url, data=body, method=method, headers={"Content-Type": "application/json"})  # noqa: S310
    try:
        with urlopen(request, timeout=30) as response:  # noqa: S310
            return int(response.status)
    except HTTPError as error:
        return error.code
    except (URLError, TimeoutError):
        return 0


def look(*, entry: str, generate: str, complete: str) -> Iterator[tuple[str, bool, int]]:
    """(what was tried, whether that is right, the status)."""
    status = _patiently(f"{entry}/health")
    yield "entry answers", status == 200, status
    status = answer("GET", f"{entry}/ready")
    yield "entry reaches Firestore", status == 200, status
    status = answer("POST", f"{entry}/tasks", b"{}")
    yield "entry refuses a caller without a session", status == 401, status
    status = answer("POST", generate, b"{}")
    yield "generate refuses a caller without a token", status in _REFUSED, status
    status = answer("POST", complete, b"{}")
    yield "complete refuses a caller without a token", status in _REFUSED, status
    status = answer("POST", f"{complete}/sweep", b"")
    yield "the sweep refuses a caller without a token", status in _REFUSED, status


def _patiently(url: str, *, tries: int = 5) -> int:
    """A new revision or a new IAM grant may take some seconds to be known everywhere."""
    for wait in (*range(1, tries), 0):
        status = answer("GET", url)
        if status == 200 or not wait:
            break
        time.sleep(wait)
    return status


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scripts.smoke", description=__doc__)
    for name in ("entry", "generate", "complete"):
        parser.add_argument(f"--{name}", required=True, metavar="URL")
    urls = vars(parser.parse_args())
    failed = 0
    for what, is_right, status in look(**{name: url.rstrip("/") for name, url in urls.items()}):
        print(f"{'ok    ' if is_right else 'FAILED'} {what} ({status or 'no answer'})")
        failed += not is_right
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
