"""Login, logout, and static files."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from penstock.servers.http import bodies
from penstock.servers.http.auth import log_in, log_out, safe_next
from penstock.servers.http.dashboard.renderer import assets, page
from penstock.servers.http.problems import Problem
from penstock.servers.http.router import Route, path_to

# Links contain a hash of the file, so that it can be cached for ever.
FOREVER = "public, max-age=31536000, immutable"


async def ask(request: Request) -> Response:
    return page(request, "login.html", next=request.query_params.get("next", ""), problem=None, name="")


async def enter(request: Request) -> Response:
    fields = await bodies.form_of(request)
    name, secret, wanted = fields.get("name", "").strip(), fields.get("secret", ""), fields.get("next")
    answer = RedirectResponse(safe_next(request, wanted), 303)
    try:
        return await log_in(request, name, secret, answer)
    except Problem as problem:
        if problem.status not in (401, 429):
            raise
        return page(request, "login.html", problem.status, next=wanted or "", problem=problem.detail, name=name)


async def leave(request: Request) -> Response:
    return log_out(request, RedirectResponse(path_to(request.scope, "login"), 303))


async def static(request: Request, path: list[str]) -> Response:
    asset = assets().get("/".join(path))
    if asset is None:
        raise Problem(404, "there is no such file", "NotFound")
    return Response(asset.content, headers={"cache-control": FOREVER}, media_type=asset.content_type)


ROUTES = [
    Route("GET", "/login", ask, is_open=True),
    Route("POST", "/login", enter, is_open=True),
    Route("POST", "/logout", leave),
    Route("GET", "/static/{path...}", static, is_open=True),
]
