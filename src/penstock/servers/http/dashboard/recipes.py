"""Recipes: the same action in Python, SQL, redis-cli and curl, ready to copy and run.

The texts are in `templates/recipes`, their quoting is in `quotes`. They contain no secrets.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.requests import Request

from penstock.domain.identity import position_of
from penstock.servers.http.auth import identity_of
from penstock.servers.http.dashboard.renderer import has_template, text
from penstock.servers.http.router import path_to
from penstock.servers.http.state import http_state
from penstock.settings import RespSettings


class Recipe(NamedTuple):
    language: str
    text: str


def queue_recipes(request: Request, queue: str, group: str) -> list[Recipe]:
    return _recipes(request, "queue", queue=queue, group=group)


def message_recipes(request: Request, queue: str, message_id: str, group: str) -> list[Recipe]:
    # In SQLite an id made by Penstock contains the position; chosen ids are in a table.
    position = position_of(message_id)
    return _recipes(request, "message", queue=queue, id=message_id, group=group, position=position)


def _recipes(request: Request, subject: str, **words: object) -> list[Recipe]:
    engine = http_state(request).store.engine.name
    # Each engine has its own SQL; one without a template has no SQL recipe.
    files = {"Python": "python", "SQL": f"sql.{engine}", "redis-cli": "redis", "curl": "curl"}

    def url(*segments: str) -> str:
        where = urlsplit(str(request.base_url))
        return f"{where.scheme}://{where.netloc}{path_to(request.scope, 'api', 'v1', *segments)}"

    surroundings = {"url": url, "curl": _curl(request), "resp_port": RespSettings().port}
    return [
        Recipe(language, text(f"recipes/{subject}.{file}.txt", **surroundings, **words))
        for language, file in files.items()
        if has_template(f"recipes/{subject}.{file}.txt")
    ]


def _curl(request: Request) -> str:
    """A token, if needed, comes from the environment: pages must not show secrets."""
    if identity_of(request).via == "open":
        return "curl -s"
    return 'curl -s -H "Authorization: Bearer $PENSTOCK_TOKEN"'
