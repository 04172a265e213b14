"""How to do the same from Python, SQL, redis-cli and curl: lines that can be copied and run as they are.

A name may hold quotes, spaces, dollar signs or marks that turn the reading direction, so every language quotes it by
its own rules. What cannot be seen is spelled as an escape.
"""

from __future__ import annotations

import shlex
from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.requests import Request

from penstock.domain.identity import position_of
from penstock.servers.http.auth import identity_of
from penstock.servers.http.routing import path_to

RESP_PORT = 4777
EXAMPLE = '{"hello": "world"}'
BODY = f'{{"payload": {EXAMPLE}}}'


class Recipe(NamedTuple):
    language: str
    text: str


def queue_recipes(request: Request, queue: str, group: str, engine: str) -> list[Recipe]:
    call, base = _curl(request), _url(request, "queues", queue)
    reader = "" if group == "default" else f", group={python(group)}"
    redis = f"redis-cli -p {RESP_PORT}"
    return [
        Recipe(
            "Python",
            "import os, penstock\n\n"
            'store = penstock.connect(os.environ["PENSTOCK_URL"])\n'
            f"queue = store.queue({python(queue)})\n"
            'queue.send({"hello": "world"})\n'
            f"for delivery in queue.receive(limit=10{reader}):\n"
            "    print(delivery.payload)\n"
            "    delivery.ack()\n"
            "print(queue.stats())",
        ),
        Recipe("SQL", _queue_sql(queue, group, engine)),
        Recipe(
            "redis-cli",
            f"{redis} QSEND {shell(queue)} {shell(EXAMPLE)} TYPE application/json\n"
            f"{redis} QRECEIVE {shell(queue)} GROUP {shell(group)} LIMIT 10\n"
            f"{redis} QINFO {shell(queue)}",
        ),
        Recipe(
            "curl",
            f"{call} -H 'Content-Type: application/json' -d {shell(BODY)} \\\n"
            f"  {shell(base + '/messages')}\n"
            f"{call} {shell(base + '/stats')}",
        ),
    ]


def _queue_sql(queue: str, group: str, engine: str) -> str:
    if engine == "sqlite":
        return (
            "select log.position, log.created_at, log.payload\n"
            "from penstock_log as log\n"
            "join penstock_lane as lane using (lane_id)\n"
            "join penstock_queue as queue using (queue_id)\n"
            f"where queue.name = {sqlite(queue)}\n"
            "order by log.position desc\nlimit 10;"
        )
    name, reader = postgres(queue), postgres(group)
    return (
        f"select penstock.send({name}, '{EXAMPLE}');\n"
        f"select * from penstock.receive({name}, {reader}, 'me', 10, 30);\n"
        f"select * from penstock.stats({name});"
    )


def message_recipes(request: Request, queue: str, message_id: str, group: str, engine: str) -> list[Recipe]:
    base = _url(request, "queues", queue, "messages", message_id)
    call, redis = _curl(request), f"redis-cli -p {RESP_PORT}"
    return [
        Recipe(
            "Python",
            "import os, penstock\n\n"
            'store = penstock.connect(os.environ["PENSTOCK_URL"])\n'
            f"queue = store.queue({python(queue)})\n"
            f"print(queue.find({python(message_id)}))\n"
            f"for entry in queue.audit({python(message_id)}):\n"
            "    print(entry.at, entry.event, entry.state, entry.by, entry.reason)\n"
            f"print(queue.explain({python(message_id)}, group={python(group)}).because)",
        ),
        Recipe("SQL", _message_sql(queue, message_id, engine)),
        Recipe(
            "redis-cli",
            f"{redis} QFIND {shell(queue)} {message_id}\n"
            f"{redis} QAUDIT {shell(queue)} {message_id}\n"
            f"{redis} QEXPLAIN {shell(queue)} {message_id} GROUP {shell(group)}",
        ),
        Recipe("curl", f"{call} {shell(base)}\n{call} {shell(base + '/audit')}\n{call} {shell(base + '/explain')}"),
    ]


def _message_sql(queue: str, message_id: str, engine: str) -> str:
    if engine == "sqlite":
        # An id that Penstock made names the position; one that was chosen is in a table of its own.
        return (
            "select log.*\n"
            "from penstock_log as log\n"
            "where log.position = coalesce(\n"
            "    (select identity.position from penstock_identity as identity\n"
            "     join penstock_queue as queue using (queue_id)\n"
            f"     where queue.name = {sqlite(queue)} and identity.id = {sqlite(message_id)}),\n"
            f"    {position_of(message_id)});"
        )
    return (
        f"select * from penstock.audit({postgres(queue)}, '{message_id}');\n"
        f"select * from penstock.message where id = '{message_id}';"
    )


# -- quoting -----------------------------------------------------------------------------------------------------------


def python(text: str) -> str:
    """Python's own way, with double quotes where that needs no escapes."""
    literal = repr(text)
    plain = literal[1:-1]
    return f'"{plain}"' if literal[0] == "'" and '"' not in plain and "\\" not in plain else literal


def shell(text: str) -> str:
    """For sh when everything can be seen, else in the form that bash, zsh and ksh have for escapes."""
    if text.isprintable():
        return shlex.quote(text)
    return "$'" + "".join(_shell_escape(character) for character in text) + "'"


def argument(text: str) -> str:
    """The same for the command line `penstock`, where a word that begins with a dash would be an option."""
    return ("-- " if text.startswith("-") else "") + shell(text)


def _shell_escape(character: str) -> str:
    if character in ("'", "\\"):
        return "\\" + character
    return character if character.isprintable() else f"\\U{ord(character):08x}"


def postgres(text: str) -> str:
    """The standard form takes a backslash as itself; escapes need the other one."""
    doubled = text.replace("'", "''")
    if text.isprintable():
        return f"'{doubled}'"
    escaped = doubled.replace("\\", "\\\\")
    return "E'" + "".join(one if one.isprintable() else f"\\U{ord(one):08x}" for one in escaped) + "'"


def sqlite(text: str) -> str:
    """SQLite has no escapes: what cannot be seen is put in by its number."""
    pieces: list[str] = []
    seen = ""
    for character in text:
        if character.isprintable():
            seen += character
            continue
        pieces += [_sqlite_plain(seen)] * bool(seen) + [f"char({ord(character)})"]
        seen = ""
    pieces += [_sqlite_plain(seen)] * (bool(seen) or not pieces)
    return " || ".join(pieces)


def _sqlite_plain(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _url(request: Request, *segments: str) -> str:
    where = urlsplit(str(request.base_url))
    return f"{where.scheme}://{where.netloc}{path_to(request.scope, 'api', 'v1', *segments)}"


def _curl(request: Request) -> str:
    """With a token from the environment where one is needed: a secret on a page would be copied with it."""
    if identity_of(request).via == "open":
        return "curl -s"
    return 'curl -s -H "Authorization: Bearer $PENSTOCK_TOKEN"'
