"""Called by the `complete` and `events` queues and by the scheduler: tells of events, finishes tasks, sweeps."""

from __future__ import annotations

from typing import Any

import functions_framework.aio
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from shared import bootstrap
from shared.http import parse, problem_response, read_body, trace_of
from shared.logs import carry_trace
from shared.problems import Problem

bootstrap.check_settings("complete")
app = bootstrap.Once(bootstrap.build_complete)


class WakeIn(BaseModel):
    model_config = ConfigDict(extra="ignore")

    task_id: str = Field(alias="taskId", min_length=1)
    events: list[dict[str, Any]] = Field(default_factory=list, max_length=100)
    """Envelopes of events that have just been written."""
    event_ids: list[str] = Field(default_factory=list, alias="eventIds", max_length=100)
    subscriber: str | None = None


@functions_framework.aio.http
async def complete(request: Request) -> Response:
    if request.method == "GET":
        return JSONResponse({"status": "ok"})
    carry_trace(trace_of(request))
    try:
        built = app()
        await built.tokens.check(request.headers)
        if request.url.path.rstrip("/").endswith("/sweep"):
            return JSONResponse(await built.sweep.run())
        wake = parse(WakeIn, request, await read_body(request, most=1_048_576))
        return JSONResponse(await _handle(built, wake))
    except Problem as problem:
        return problem_response(problem)


async def _handle(built: bootstrap.CompleteApp, wake: WakeIn) -> dict[str, Any]:
    from shared.events import read_envelope
    from shared.flow.complete import NotDelivered

    if wake.subscriber is not None:
        try:
            await built.desk.deliver(wake.task_id, wake.event_ids[0], wake.subscriber)
        except NotDelivered as error:
            # 500, so that Cloud Tasks tries again with its backoff; 429 and 503 would slow the whole queue.
            raise Problem("INTERNAL", str(error)) from error
        return {"outcome": "delivered"}
    if wake.events:
        await built.desk.tell(wake.task_id, [read_envelope(envelope) for envelope in wake.events])
        return {"outcome": "told"}
    if wake.event_ids:
        await built.desk.look_and_tell(wake.task_id, wake.event_ids)
        return {"outcome": "looked"}
    return {"outcome": await built.settler.settle(wake.task_id)}
