"""One Cloud Logging JSON line per step, with a stable word to search and alert on.

Keys, prompts, openids, tokens and signed URLs are never fields of a line.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

_trace: ContextVar[str | None] = ContextVar("trace", default=None)


def carry_trace(trace_id: str | None) -> None:
    """Lines of the present request are tied to this trace from here on."""
    _trace.set(trace_id)


class Log:
    """`log.info("shot.generated", task_id=…, index=…)`."""

    def __init__(self, source: str) -> None:
        self._logger = logging.getLogger(f"lookbook.{source}")
        self._source = source

    def info(self, event: str, **fields: Any) -> None:
        self._logger.info(event, extra={"fields": fields, "source": self._source})

    def warning(self, event: str, **fields: Any) -> None:
        self._logger.warning(event, extra={"fields": fields, "source": self._source})

    def error(self, event: str, *, exc_info: BaseException | None = None, **fields: Any) -> None:
        self._logger.error(event, exc_info=exc_info, extra={"fields": fields, "source": self._source})


class CloudFormatter(logging.Formatter):
    def __init__(self, project: str) -> None:
        super().__init__()
        self._project = project

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "severity": record.levelname,
            "message": record.getMessage(),
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "pid": record.process,
        }
        source = getattr(record, "source", None)
        if source is not None:
            line["source"] = source
        line.update(getattr(record, "fields", {}))
        trace = _trace.get()
        if trace is not None:
            line["logging.googleapis.com/trace"] = f"projects/{self._project}/traces/{trace}"
            line["traceId"] = trace
        if record.exc_info and record.exc_info[1] is not None:
            line["exception"] = "".join(traceback.format_exception(record.exc_info[1]))
        return json.dumps(line, ensure_ascii=False, default=str)


def set_up(level: str, project: str) -> None:
    """functions-framework leaves the root logger at WARNING without a formatter of its own."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(CloudFormatter(project))
    logger = logging.getLogger("lookbook")
    logger.handlers = [handler]
    logger.propagate = False
    logger.setLevel(level)
