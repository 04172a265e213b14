"""The ASGI application: routing, checks before the handler, and error responses.

app = application("sqlite:///app.db")               # any ASGI server runs it
outer.mount("/queues", application(store))          # or a part of another application
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any
from urllib.parse import urlencode

from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response

from penstock.client.aio.store import AsyncStore
from penstock.domain.validation import shown
from penstock.servers.access import User, Users, make_users
from penstock.servers.http import auth, health, metrics, state
from penstock.servers.http.api import ROUTES as API_ROUTES
from penstock.servers.http.auth import Identity
from penstock.servers.http.bodies import check_length
from penstock.servers.http.problems import CONTENT_TYPE, Problem, problem_of
from penstock.servers.http.request import HttpRequest
from penstock.servers.http.router import Match, Router, path_to, segments_of
from penstock.servers.http.security import SAFE_METHODS, add_security_headers, check_csrf, check_host, check_origin
from penstock.servers.http.state import HttpState, Identify
from penstock.settings import HttpSettings

# How long to read on from a client that still sends after its request was refused.
LINGER_SECONDS = 2.0
ErrorPage = Callable[[Request, Problem], Awaitable[Response]]


def application(
    store: AsyncStore | str,
    *,
    users: Iterable[User] | Users | None = None,
    settings: HttpSettings | None = None,
    identify: Identify | None = None,
    dashboard: bool = True,
) -> Application:
    """An ASGI application for a store, or for the URL of one. `users` are made by `penstock.servers.access.make_user`;
    with `identify` the outer application authenticates. With neither, only clients on this machine are served, with all
    rights."""
    known = users if isinstance(users, Users) else Users(make_users(None, {}) if users is None else users)
    return Application(HttpState(store, known, settings or HttpSettings(), identify), dashboard)


class Application:
    def __init__(self, shared: HttpState, dashboard: bool = True) -> None:
        self.state = shared
        self._error_page: ErrorPage | None = None
        routes = [*API_ROUTES, *health.ROUTES, *metrics.ROUTES]
        if dashboard:
            from penstock.servers.http import dashboard as pages

            routes += pages.ROUTES
            shared.on_open.append(lambda one: setattr(one, "history", pages.make_history(one)))
            self._error_page = pages.error_page
        self.routes = Router(routes)

    async def close(self) -> None:
        await self.state.close()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._serve_other(scope["type"], receive, send)
            return
        began = time.perf_counter()
        scope[state.SCOPE_KEY] = self.state
        request = HttpRequest(scope, receive, self.state.settings.body_bytes)
        segments: list[str] = []
        match: Match | None = None
        try:
            segments = segments_of(scope)
            match = self.routes.find(scope["method"], segments)
            response = await self._handle(request, match)
        except ClientDisconnect:
            return
        except Exception as error:
            response = await self._refuse(request, segments, problem_of(error))
        route = None if match is None else match.route
        self.state.request_metrics.note(route, scope["method"], response.status_code, time.perf_counter() - began)
        add_security_headers(response, scope.get("scheme") == "https")
        connection = request.connection
        if connection is not None:
            connection.is_responding = True
        try:
            if response.status_code == 413:
                await _linger(response, receive, send)
            else:
                await response(scope, receive, send)
        finally:
            if connection is not None:
                connection.is_responding = False

    async def _serve_other(self, kind: str, receive: Any, send: Any) -> None:
        if kind != "lifespan":
            await send({"type": "websocket.close", "code": 1008})
            return
        await receive()
        try:
            await self.state.open()
        except Exception as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.close()
        await send({"type": "lifespan.shutdown.complete"})

    # -- before the handler ------------------------------------------------------------------------------------------

    async def _handle(self, request: HttpRequest, match: Match | None) -> Response:
        if not self.state.is_open:
            await self.state.open()
        check_host(request, self.state)
        if match is None:
            raise Problem(404, f"there is nothing at {shown(request.scope['path'])}", "NotFound")
        if match.route is None:
            raise _wrong_method(request.scope["method"], match.others)
        route, values = match.route, match.values
        identity: Identity | None = None
        try:
            identity = await auth.identify(request, self.state)
        except Problem:
            if not route.is_open:
                raise
        if identity is not None:
            request.scope[auth.SCOPE_KEY] = identity
            if request.connection is not None and request.connection.user != identity.user.name:
                request.connection.belongs_to(identity.user.name)
        if not route.is_open:
            if identity is None:
                raise auth.login_needed()
            auth.check_right(identity, route.right, values.get("queue"))
        if route.is_streamed:
            request.limit = None
            if request.connection is not None:
                request.connection.expect_stream()
        else:
            check_length(request)
        if request.scope["method"] not in SAFE_METHODS:
            check_origin(request)
            if identity is not None and identity.via == "cookie" and not route.is_open:
                await check_csrf(request, identity)
        response: Response = await route.handler(request, **values)
        return response

    # -- instead of the handler --------------------------------------------------------------------------------------

    async def _refuse(self, request: Request, segments: list[str], problem: Problem) -> Response:
        if self._error_page is not None and not _is_for_programs(request, segments):
            with contextlib.suppress(Exception):
                response = await self._page(request, problem)
                response.headers.update(dict(problem.headers))
                return response
        return Response(problem.encoded(), problem.status, dict(problem.headers), CONTENT_TYPE)

    async def _page(self, request: Request, problem: Problem) -> Response:
        if problem.status == 401 and request.method in SAFE_METHODS:
            here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
            return RedirectResponse(f"{path_to(request.scope, 'login')}?{urlencode({'next': here})}", 303)
        assert self._error_page is not None
        return await self._error_page(request, problem)


def _wrong_method(method: str, others: tuple[str, ...]) -> Problem:
    allowed = ", ".join(others)
    return Problem(
        405,
        f"{shown(method)} is not possible here: use {allowed}",
        "MethodNotAllowed",
        headers=[("allow", allowed)],
    )


def _is_for_programs(request: Request, segments: list[str]) -> bool:
    return segments[:1] in (["api"], ["healthz"], ["readyz"], ["metrics"]) or "text/html" not in request.headers.get(
        "accept", ""
    )


async def _linger(response: Response, receive: Any, send: Any) -> None:
    """Respond, and keep reading for a moment: closing while the client still sends would discard the response."""
    headers = [*response.raw_headers, (b"connection", b"close")]
    await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": response.body, "more_body": True})
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LINGER_SECONDS):
            while (message := await receive())["type"] == "http.request" and message.get("more_body"):
                pass
    await send({"type": "http.response.body", "body": b"", "more_body": False})
