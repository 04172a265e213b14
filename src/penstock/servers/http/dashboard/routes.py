"""The routes of all pages, the error page, and the history that live pages share."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from penstock.servers.http.dashboard.history import History
from penstock.servers.http.dashboard.pages import (
    access,
    api,
    batches,
    consumers,
    dead_letters,
    deletion,
    message,
    messages,
    overview,
    pipeline,
    policy,
    queue,
    schedules,
    search,
    seek,
)
from penstock.servers.http.dashboard.renderer import page
from penstock.servers.http.problems import Problem
from penstock.servers.http.router import Route
from penstock.servers.http.state import HttpState

PAGES = (
    overview,
    queue,
    policy,
    seek,
    deletion,
    messages,
    message,
    search,
    dead_letters,
    batches,
    schedules,
    consumers,
    pipeline,
    api,
    access,
)
ROUTES: list[Route] = [route for one in PAGES for route in one.ROUTES]


async def error_page(request: Request, problem: Problem) -> Response:
    return page(request, "problem.html", problem.status, problem=problem)


def make_history(state: HttpState) -> History:
    history = History(state)
    history.start()
    return history
