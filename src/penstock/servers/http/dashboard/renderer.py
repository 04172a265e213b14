"""Render templates. Everything is escaped unless it is Markup; undefined names are errors."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache, partial
from importlib.resources import files
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined, TemplateNotFound
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

import penstock
from penstock.domain.control_characters import escape_controls
from penstock.servers.access import Right
from penstock.servers.http import auth
from penstock.servers.http.auth import Identity
from penstock.servers.http.dashboard import figures, notices, quotes
from penstock.servers.http.router import path_to
from penstock.servers.http.state import http_state

PACKAGE = "penstock.servers.http.dashboard"
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".woff2": "font/woff2",
}


class Asset(NamedTuple):
    content: bytes
    content_type: str
    mark: str


@lru_cache(maxsize=1)
def assets() -> dict[str, Asset]:
    """Every static file by its path; nothing else is served."""
    found: dict[str, Asset] = {}
    root = files(PACKAGE) / "static"
    for folder in ("", "vendor"):
        for file in (root / folder if folder else root).iterdir():
            suffix = PurePosixPath(file.name).suffix
            if file.is_file() and suffix in TYPES:
                content = file.read_bytes()
                path = f"{folder}/{file.name}" if folder else file.name
                found[path] = Asset(content, TYPES[suffix], hashlib.sha256(content).hexdigest()[:16])
    return found


def page(request: Request, template: str, status: int = 200, **context: Any) -> HTMLResponse:
    """Render a page, with the pending notice, which is shown once."""
    notice = notices.waiting(request)
    response = HTMLResponse(fragment(request, template, notice=notice, **context), status)
    if notice is not None:
        notices.forget(request, response)
    return response


def fragment(request: Request, template: str, **context: Any) -> str:
    return _environment().get_template(template).render({**_surroundings(request), **context})


def text(template: str, **context: Any) -> str:
    """Render plain text, which the page escapes."""
    return _environment().get_template(template).render(context)


def has_template(name: str) -> bool:
    try:
        _environment().get_template(name)
    except TemplateNotFound:
        return False
    return True


def back(request: Request, *segments: str, query: str = "", notice: str | None = None, kind: str = "good") -> Response:
    """Redirect after an action to a page that shows its result."""
    response = RedirectResponse(path_to(request.scope, *segments) + query, 303)
    if notice is not None:
        notices.leave(request, response, notice, kind)
    return response


def _surroundings(request: Request) -> Mapping[str, Any]:
    # There is no user on the login page, nor on its error page.
    identity: Identity | None = request.scope.get(auth.SCOPE_KEY)
    link = partial(path_to, request.scope)

    def asset(path: str) -> str:
        return f"{link('static', *path.split('/'))}?v={assets()[path].mark}"

    def may(right: str, queue: str | None = None) -> bool:
        return identity is not None and identity.may(Right(right), queue)

    return {
        "link": link,
        "asset": asset,
        "may": may,
        "identity": identity,
        "now": datetime.now(UTC),
        "version": penstock.__version__,
        "engine": http_state(request).store.engine.name,
        "address": request.url.path + (f"?{request.url.query}" if request.url.query else ""),
    }


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(PACKAGE),
        autoescape=lambda name: name is None or not name.endswith(".txt"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters.update(
        ago=figures.ago,
        argument=quotes.argument,
        clock=figures.clock,
        count=figures.count,
        duration=figures.duration,
        moment=figures.moment,
        plural=figures.plural,
        mariadb=quotes.mariadb,
        postgres=quotes.postgres,
        python=quotes.python,
        rate=figures.rate,
        second=figures.second,
        shell=quotes.shell,
        short_count=figures.short_count,
        size=figures.size,
        sqlite=quotes.sqlite,
        mark=mark,
        visible=_visible,
        lines=_lines,
    )
    return environment


def mark(name: str) -> str:
    """A digest of a name, for ids of elements, which may not contain all characters."""
    return "n" + hashlib.sha256(name.encode()).hexdigest()[:16]


def _lines(value: object) -> str:
    """Escape invisible characters, except line ends."""
    return escape_controls(str(value), "\n\t")


def _visible(value: object) -> str:
    return escape_controls(str(value))
