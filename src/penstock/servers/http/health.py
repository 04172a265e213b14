"""Liveness and readiness probes, open to everybody: they reveal nothing else."""

from __future__ import annotations

import asyncio
import logging

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from penstock.servers.http.router import Route
from penstock.servers.http.state import http_state

logger = logging.getLogger("penstock.http")
PATIENCE_SECONDS = 5.0


async def healthz(request: Request) -> Response:
    return JSONResponse({"status": "ok"})


async def readyz(request: Request) -> Response:
    state = http_state(request)
    try:
        if state.is_closing.is_set():
            return _not_ready()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await state.store.executor.read(state.store.engine.seen)
    except Exception as error:
        logger.warning("not ready: %s: %s", type(error).__name__, error)
        return _not_ready()
    return JSONResponse({"status": "ready"})


def _not_ready() -> Response:
    return JSONResponse({"status": "unavailable"}, 503, {"retry-after": "1"})


ROUTES = [Route("GET", "/healthz", healthz, is_open=True), Route("GET", "/readyz", readyz, is_open=True)]
