"""Makes the source archive that Terraform uploads: what the functions need, and not a byte more.

The same sources give the same bytes on every machine, so the archive's name can be its hash: what has not
changed is not deployed. Files are stored, not compressed: zlib's output differs from version to version.
"""

from __future__ import annotations

import argparse
import hashlib
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHIPPED = ("main.py", "requirements.txt", "functions", "shared")
DEFAULT_TARGET = ROOT / "build" / "lookbook.zip"


def shipped_files(root: Path) -> Iterator[Path]:
    """In the order in which they are packed."""
    for name in SHIPPED:
        path = root / name
        found = [path] if path.is_file() else sorted(path.rglob("*"), key=lambda file: file.as_posix())
        yield from (file for file in found if file.is_file() and "__pycache__" not in file.parts)


def make_archive(root: Path, target: Path) -> str:
    """Writes the archive and returns the name that Terraform gives it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for file in shipped_files(root):
            entry = zipfile.ZipInfo(file.relative_to(root).as_posix(), date_time=(1980, 1, 1, 0, 0, 0))
            entry.create_system = 3
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, file.read_bytes())
    digest = hashlib.sha256(target.read_bytes()).hexdigest()
    return f"lookbook-{digest[:16]}.zip"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scripts.package", description=__doc__)
    parser.add_argument("--to", type=Path, default=DEFAULT_TARGET, help="where the archive is written")
    target: Path = parser.parse_args().to
    name = make_archive(ROOT, target)
    print(f"{target} ({target.stat().st_size // 1024} kB) → {name}")


if __name__ == "__main__":
    main()
