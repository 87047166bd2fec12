"""The public door: the mini-program posts tasks here and reads what became of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import functions_framework.aio
from starlette.requests import Request
from starlette.responses import Response

from shared import bootstrap

if TYPE_CHECKING:
    from fastapi import FastAPI

bootstrap.check_settings("entry")


def _build() -> FastAPI:
    from functions.entry.routes import build_api

    return build_api(bootstrap.build_entry())


api = bootstrap.Once(_build)


@functions_framework.aio.http
async def entry(request: Request) -> Response:
    # functions-framework calls what is returned as an ASGI application, and that is all a Response is to it.
    return cast(Response, api())
