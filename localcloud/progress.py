"""How a task looks while its pictures are made: one line per shot and a bar, or plain lines in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Any, Protocol, Self

FINAL = frozenset({"completed", "partial", "failed", "cancelled"})


class Stage(StrEnum):
    WAITING = "waiting"
    PREPARING = "preparing"
    DRAWING = "drawing"
    STORED = "stored"
    FAILED = "failed"
    CANCELLED = "cancelled"


_WORDS = {
    Stage.WAITING: ("·", "等待", "dim"),
    Stage.PREPARING: ("◌", "准备", "cyan"),
    Stage.DRAWING: ("✎", "绘制", "yellow"),
    Stage.STORED: ("✓", "完成", "green"),
    Stage.FAILED: ("✗", "失败", "red"),
    Stage.CANCELLED: ("–", "取消", "dim"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShotLine:
    """One shot, as it is shown."""

    index: int
    stage: Stage
    note: str = ""
    """The key it is drawn with, or what went wrong."""

    def plain(self) -> str:
        mark, word, _ = _WORDS[self.stage]
        return f"{mark} #{self.index + 1} {word} {self.stage.value}" + (f"  {self.note}" if self.note else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskView:
    """One answer of `GET /tasks/{id}`, as it is shown."""

    status: str
    total: int
    lines: tuple[ShotLine, ...]

    @property
    def is_final(self) -> bool:
        return self.status in FINAL

    @property
    def stored(self) -> int:
        return sum(line.stage is Stage.STORED for line in self.lines)


def read_task(answer: Mapping[str, Any]) -> TaskView:
    lines = tuple(_line(shot) for shot in sorted(answer.get("shots", ()), key=lambda shot: shot["index"]))
    return TaskView(status=answer["status"], total=answer.get("total", len(lines)), lines=lines)


def _line(shot: Mapping[str, Any]) -> ShotLine:
    stage, error = Stage(shot["stage"]), shot.get("error")
    note = ""
    if stage is Stage.DRAWING and shot.get("keyId"):
        note = f"密钥 key {shot['keyId']}"
    elif error and stage is not Stage.STORED:
        note = f"{error['code']} {error['message']}"
    return ShotLine(index=shot["index"], stage=stage, note=note)


class Screen(Protocol):
    """Where a run is shown."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def show(self, view: TaskView) -> None: ...
    def say(self, text: str) -> None: ...


class PlainScreen:
    """A line for every change; for logs and pipes."""

    def __init__(self) -> None:
        self._shown: dict[int, ShotLine] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    def show(self, view: TaskView) -> None:
        for line in view.lines:
            if self._shown.get(line.index) != line:
                self._shown[line.index] = line
                self.say(f"  [{view.stored}/{view.total}] {line.plain()}")

    def say(self, text: str) -> None:
        print(text, flush=True)


class LiveScreen:
    """A table that redraws itself under the lines that scroll by."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(highlight=False)
        self._live = Live(console=self._console, refresh_per_second=10, transient=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, view: TaskView) -> None:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2))
        for line in view.lines:
            mark, word, style = _WORDS[line.stage]
            table.add_row(
                Text(f"{line.index + 1:>3}", style="dim"),
                Text(f"{mark} {word} {line.stage.value}", style=style),
                Text(line.note, style="red" if line.stage is Stage.FAILED else "dim"),
            )
        bar = Table.grid(padding=(0, 2))
        bar.add_row(
            ProgressBar(total=max(view.total, 1), completed=view.stored, width=40),
            Text(f"{view.stored}/{view.total} {view.status}"),
        )
        self._live.update(Group(table, bar))

    def say(self, text: str) -> None:
        from rich.text import Text

        self._console.print(Text(text))


def screen_for_terminal() -> PlainScreen | LiveScreen:
    return LiveScreen() if sys.stdout.isatty() else PlainScreen()
