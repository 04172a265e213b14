"""The routes of all pages, the page for what went wrong, and the history that live pages share."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from penstock.servers.http.dashboard.history import History
from penstock.servers.http.dashboard.pages import (
    access,
    batches,
    consumers,
    dead_letters,
    message,
    overview,
    pipeline,
    queue,
    schedules,
    search,
)
from penstock.servers.http.dashboard.rendering import page
from penstock.servers.http.problems import Problem
from penstock.servers.http.routing import Route
from penstock.servers.http.site import Site

PAGES = (overview, queue, message, search, dead_letters, batches, schedules, consumers, pipeline, access)
ROUTES: list[Route] = [route for one in PAGES for route in one.ROUTES]


async def error_page(request: Request, problem: Problem) -> Response:
    return page(request, "problem.html", problem.status, problem=problem)


def make_history(site: Site) -> History:
    history = History(site)
    history.start()
    return history
