"""The public door: the mini-program posts tasks here and reads what became of them."""

from __future__ import annotations

import functions_framework.aio
from fastapi import FastAPI
from starlette.requests import Request

from shared import bootstrap

bootstrap.check_settings("entry")


def _build() -> FastAPI:
    from functions.entry.routes import build_api

    return build_api(bootstrap.build_entry())


api = bootstrap.Once(_build)


@functions_framework.aio.http
async def entry(request: Request) -> FastAPI:
    """functions-framework calls what is returned as the ASGI application that it is."""
    return api()
