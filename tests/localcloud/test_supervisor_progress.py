"""What a person sees while the pictures are made."""

from __future__ import annotations

from typing import Any

import pytest

from localcloud.progress import PlainScreen, Stage, read_task

LATE = {"code": "TIMEOUT", "message": "no answer"}


def a_task(*shots: dict[str, Any], status: str = "processing") -> dict[str, Any]:
    numbered = [{"index": index, "error": None, **shot} for index, shot in enumerate(shots)]
    return {"status": status, "total": len(shots), "shots": numbered}


@pytest.mark.parametrize(
    ("shot", "stage", "note"),
    [
        ({"stage": "waiting"}, Stage.WAITING, ""),
        ({"stage": "preparing"}, Stage.PREPARING, ""),
        ({"stage": "drawing", "keyId": "key2"}, Stage.DRAWING, "key2"),
        # an error that was overcome is not worth a word
        ({"stage": "stored", "keyId": "key2", "error": LATE}, Stage.STORED, ""),
        # put back after an error: it waits again, and says why
        ({"stage": "waiting", "error": LATE}, Stage.WAITING, "TIMEOUT no answer"),
        ({"stage": "failed", "error": LATE}, Stage.FAILED, "TIMEOUT no answer"),
        ({"stage": "cancelled"}, Stage.CANCELLED, ""),
    ],
)
def test_line_of_a_shot_tells_its_stage_and_why(shot: dict[str, Any], stage: Stage, note: str) -> None:
    (line,) = read_task(a_task(shot)).lines
    assert line.stage is stage
    assert note in line.note and bool(note) == bool(line.note)


def test_plain_screen_prints_only_what_has_changed(capsys: pytest.CaptureFixture[str]) -> None:
    screen = PlainScreen()
    first = a_task({"stage": "waiting"}, {"stage": "waiting"})
    screen.show(read_task(first))
    screen.show(read_task(first))
    screen.show(read_task(a_task({"stage": "waiting"}, {"stage": "stored"})))
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 3
    assert "[1/2]" in printed[-1]
    assert "#2" in printed[-1]


def test_task_is_final_only_in_a_final_status() -> None:
    assert not read_task(a_task(status="processing")).is_final
    assert all(read_task(a_task(status=s)).is_final for s in ("completed", "partial", "failed", "cancelled"))
