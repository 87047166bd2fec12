"""One step, one JSON line that Cloud Logging understands; no secrets in it."""

from __future__ import annotations

import contextlib
import io
import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from shared import logs
from shared.logs import CloudFormatter, Log, carry_trace

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
log = Log("generate")


def output(*steps: Callable[[], None], level: str = "INFO", times: int = 1) -> str:
    """What a process that was set up so writes; the logger is left as it was."""
    logger = logging.getLogger("lookbook")
    handlers, propagate, before = logger.handlers, logger.propagate, logger.level
    with contextlib.redirect_stdout(io.StringIO()) as written:
        try:
            for _ in range(times):
                logs.set_up(level, "atelier")
            for step in steps:
                step()
        finally:
            carry_trace(None)
            logger.handlers, logger.propagate = handlers, propagate
            logger.setLevel(before)
    return written.getvalue()


def line_of(*steps: Callable[[], None]) -> dict[str, Any]:
    text = output(*steps)
    assert text.endswith("\n")
    assert text.count("\n") == 1
    line: dict[str, Any] = json.loads(text)
    return line


def test_a_step_is_one_json_line_with_its_word_and_its_fields() -> None:
    line = line_of(lambda: log.info("shot.generated", task_id="task_1", index=3, ms=812))
    assert (line["severity"], line["message"], line["source"]) == ("INFO", "shot.generated", "generate")
    assert (line["task_id"], line["index"], line["ms"]) == ("task_1", 3, 812)
    assert datetime.fromisoformat(line["time"]).tzinfo == UTC


@pytest.mark.parametrize(("say", "severity"), [(log.warning, "WARNING"), (log.error, "ERROR")])
def test_severities_are_cloud_loggings(say: Callable[..., None], severity: str) -> None:
    assert line_of(lambda: say("key.disabled", key_id="key1"))["severity"] == severity


def test_a_line_is_tied_to_the_trace_of_its_request() -> None:
    line = line_of(lambda: carry_trace(TRACE), lambda: log.info("task.accepted"))
    assert line["traceId"] == TRACE
    assert line["logging.googleapis.com/trace"] == f"projects/atelier/traces/{TRACE}"


def test_a_line_outside_a_request_has_no_trace() -> None:
    line = line_of(lambda: log.info("process.started"))
    assert not {"traceId", "logging.googleapis.com/trace"} & set(line)


def test_a_traceback_stays_within_its_line() -> None:
    def crash() -> None:
        try:
            raise ValueError("first line\nsecond line")
        except ValueError as error:
            log.error("request.crashed", exc_info=error)

    line = line_of(crash)
    assert "Traceback" in line["exception"]
    assert "second line" in line["exception"]


def test_chinese_is_readable_in_a_line() -> None:
    assert "商业摄影" in output(lambda: log.info("task.accepted", scene="商业摄影"))


def test_a_secret_that_strays_into_a_line_is_masked() -> None:
    secret = SecretStr("AIza-never-show")
    text = output(lambda: log.info("odd", key=secret, nested={"keys": [secret]}))
    assert text.count("**********") == 2
    assert "never-show" not in text


def test_times_and_other_objects_are_written_as_text() -> None:
    line = line_of(lambda: log.info("odd", at=datetime(2025, 10, 13, tzinfo=UTC), names={"one"}))
    assert line["at"].startswith("2025-10-13")
    assert "one" in line["names"]


def test_steps_below_the_level_are_left_out() -> None:
    steps = (lambda: log.info("slot.leased"), lambda: log.warning("slot.lost"))
    assert "slot.leased" in output(*steps)
    assert "slot.leased" not in output(*steps, level="WARNING")
    assert output(*steps, level="ERROR") == ""


def test_setting_up_twice_does_not_write_twice() -> None:
    assert output(lambda: log.info("process.started"), times=2).count("process.started") == 1


def test_the_lines_of_other_libraries_are_left_alone() -> None:
    """The COS SDK writes signing keys at DEBUG: neither our level nor our handler is theirs."""
    theirs = logging.getLogger("qcloud_cos.cos_client")
    assert output(lambda: theirs.debug("signing with never-show"), level="DEBUG") == ""


FIELDS = st.dictionaries(
    st.from_regex(r"[a-z_]{1,10}", fullmatch=True),
    st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.text(), max_size=3),
    max_size=5,
)


@given(event=st.text(), fields=FIELDS)
def test_any_step_is_one_line_of_json(event: str, fields: dict[str, Any]) -> None:
    record = logging.LogRecord("lookbook.x", logging.INFO, "", 0, event, None, None)
    record.fields = fields
    text = CloudFormatter("atelier").format(record)
    assert "\n" not in text
    assert "\r" not in text
    line = json.loads(text)
    assert line["severity"] == fields.get("severity", "INFO")
    assert all(line[name] == value for name, value in fields.items())
