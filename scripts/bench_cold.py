"""How long each function takes from nothing to its first answer, and until it could work; and its memory then.

The archive is unpacked and compiled as the buildpack does it, and each function is started the way Cloud Run starts
it, with nobody else at work. The machine is not Cloud Run's: compare functions and releases with each other.
"""

from __future__ import annotations

import argparse
import compileall
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, Request, build_opener

import psutil  # type: ignore[import-untyped]

from localcloud.environment import SEED_KEYS, Addresses, process_environment, settings_for
from scripts.package import ROOT, make_archive

FUNCTIONS = ("entry", "generate", "complete")
_PATIENCE = 60.0
_NOWHERE = "http://127.0.0.1:9"
_direct = build_opener(ProxyHandler({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    answers: float
    """Seconds until it says that it is well."""
    works: float
    """Seconds until it has built what it works with, and has refused a caller whose token is none."""
    megabytes: float


def made_up_settings() -> dict[str, str]:
    """Enough to start with; a function connects to nothing before it has something to do."""
    addresses = Addresses(
        firestore="127.0.0.1:9",
        tasks="127.0.0.1:9",
        jwks_url=f"{_NOWHERE}/jwks",
        entry=_NOWHERE,
        generate=_NOWHERE,
        complete=_NOWHERE,
        wechat=_NOWHERE,
        receiver=_NOWHERE,
        callback_url=f"{_NOWHERE}/callback",
        sample="cloud://sample",
        gemini=_NOWHERE,
        openai=_NOWHERE,
        cos=_NOWHERE,
    )
    return settings_for(addresses, keys=SEED_KEYS, given={}, extra={})


@contextmanager
def unpacked_archive() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="lookbook-cold-") as folder:
        make_archive(ROOT, Path(folder) / "lookbook.zip")
        source = Path(folder) / "source"
        with zipfile.ZipFile(Path(folder) / "lookbook.zip") as archive:
            archive.extractall(source)
        compileall.compile_dir(source, quiet=1)
        yield source


def start(function: str, source: Path) -> Start:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    more = {"FUNCTION_TARGET": function, "HOST": "127.0.0.1", "PORT": port}
    began = time.perf_counter()
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, "-m", "functions_framework", "--target", function, "--port", port],
        cwd=source,
        env=process_environment(made_up_settings(), os.environ, more),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        _wait(f"http://127.0.0.1:{port}/health", process)
        answers = time.perf_counter() - began
        _refused(f"http://127.0.0.1:{port}/tasks")
        works = time.perf_counter() - began
        family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        # The worker alone: Cloud Run counts both, but the master shares its pages with it.
        most = max(one.memory_info().rss for one in family)
        return Start(answers=answers, works=works, megabytes=most / 1e6)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    give_up = time.perf_counter() + _PATIENCE
    while time.perf_counter() < give_up:
        if process.poll() is not None:
            raise SystemExit(f"the function ended with {process.returncode} before its first answer")
        try:
            with _direct.open(url, timeout=5):
                return
        except (URLError, ConnectionError):
            time.sleep(0.005)
    raise SystemExit(f"no answer within {_PATIENCE:.0f} s")


def _refused(url: str) -> None:
    request = Request(url, data=b"{}", method="POST", headers={"Authorization": "Bearer none"})  # noqa: S310
    try:
        _direct.open(request, timeout=30).close()
    except HTTPError as error:
        error.close()


def imports_of(function: str, source: Path, most: int) -> tuple[int, list[tuple[str, float]]]:
    """How many modules are imported, and the packages that take longest, in milliseconds of their own."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", "import main"],
        cwd=source,
        env=process_environment(made_up_settings(), os.environ, {"FUNCTION_TARGET": function}),
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line.removeprefix("import time:").split("|") for line in done.stderr.splitlines() if "|" in line]
    own: dict[str, float] = {}
    for micros, _, name in lines[1:]:
        package = ".".join(name.strip().split(".")[: 2 if name.strip().startswith("google.") else 1])
        own[package] = own.get(package, 0) + int(micros) / 1000
    longest = sorted(own.items(), key=lambda item: -item[1])[:most]
    return len(lines) - 1, longest


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scripts.bench_cold", description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    runs: int = parser.parse_args().runs
    with unpacked_archive() as source:
        start("entry", source)  # The packages' own files are read from the disk once, for all.
        print(f"{'':10}{'answers':>9}{'works':>9}{'memory':>9}{'modules':>9}  longest to import (ms)")
        for function in FUNCTIONS:
            starts = [start(function, source) for _ in range(runs)]
            modules, longest = imports_of(function, source, 5)
            told = ", ".join(f"{name} {ms:.0f}" for name, ms in longest)
            print(
                f"{function:10}{statistics.median(one.answers for one in starts):>7.2f} s"
                f"{statistics.median(one.works for one in starts):>7.2f} s"
                f"{max(one.megabytes for one in starts):>6.0f} MB{modules:>9}  {told}"
            )


if __name__ == "__main__":
    main()
