"""Whether the server lives, and whether it can serve: for those who start and stop it. Open to everybody, so they say
nothing else."""

from __future__ import annotations

import asyncio
import logging

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from penstock.servers.http.routing import Route
from penstock.servers.http.site import site_of

logger = logging.getLogger("penstock.http")
PATIENCE_SECONDS = 5.0


async def healthz(request: Request) -> Response:
    return JSONResponse({"status": "ok"})


async def readyz(request: Request) -> Response:
    site = site_of(request)
    try:
        if site.is_closing.is_set():
            return _not_ready()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await site.store._read(site.store.engine.seen)
    except Exception as error:
        logger.warning("not ready: %s: %s", type(error).__name__, error)
        return _not_ready()
    return JSONResponse({"status": "ready"})


def _not_ready() -> Response:
    return JSONResponse({"status": "unavailable"}, 503, {"retry-after": "1"})


ROUTES = [Route("GET", "/healthz", healthz, is_open=True), Route("GET", "/readyz", readyz, is_open=True)]
