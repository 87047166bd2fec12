"""How the operator's tool speaks: plain tables and times, and a reason when it can't do what it was asked."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime


class Refused(Exception):
    """The command can't be done; the message says why."""


def told_time(moment: datetime | None) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}Z" if moment else "never"


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """The first row is the heading."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
