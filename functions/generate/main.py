"""Called by the `generate` queue, once per shot: checks the caller, draws the shot, answers 2xx."""

from __future__ import annotations

import functions_framework.aio
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from shared import bootstrap
from shared.http import parse, problem_response, read_body, trace_of
from shared.logs import carry_trace
from shared.problems import Problem

bootstrap.check_settings("generate")
app = bootstrap.Once(bootstrap.build_generate)


class WakeIn(BaseModel):
    model_config = ConfigDict(extra="ignore")

    task_id: str = Field(alias="taskId", min_length=1)
    index: int = Field(ge=0)
    version: str = Field(min_length=1)
    attempts: int = Field(default=0, ge=0)
    waits: int = Field(default=0, ge=0)
    fresh: bool = False
    bulk: bool = False
    stashed: bool = False


@functions_framework.aio.http
async def generate(request: Request) -> Response:
    if request.method == "GET":
        return JSONResponse({"status": "ok"})
    try:
        built = app()
        await built.tokens.check(request.headers)
        wake = parse(WakeIn, request, await read_body(request, most=65_536))
    except Problem as problem:
        return problem_response(problem)
    from shared.flow.claim import ShotWake

    trace_id = trace_of(request) or "0" * 31 + "1"
    carry_trace(trace_id)
    outcome = await built.studio.draw(
        ShotWake(
            task_id=wake.task_id,
            index=wake.index,
            version=wake.version,
            attempts=wake.attempts,
            waits=wake.waits,
            fresh=wake.fresh,
            bulk=wake.bulk,
            stashed=wake.stashed,
            trace_id=trace_id,
        )
    )
    return JSONResponse({"outcome": outcome})
