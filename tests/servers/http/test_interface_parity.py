"""What can be done on a page can be done through the API and on the command line, with the same rights."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from penstock.cli.program import FAMILIES, PANELS
from penstock.servers.access import Right
from penstock.servers.http.api.operations import OPERATIONS
from penstock.servers.http.dashboard import ROUTES
from tests.cli.cli_runner import Cli

BY_NAME = {operation.name: operation for operation in OPERATIONS}
# Sessions are the browser's own: programs say who they are with every request.
BROWSERS_ONLY = {"/login", "/logout"}


class Twin(NamedTuple):
    """The same through the API (names of operations) and on the command line (commands)."""

    operations: tuple[str, ...]
    commands: tuple[str, ...]


SETTLEMENTS = ("ack", "nak", "reject", "reschedule")
ACTIONS = {
    "/queues/{queue}/pause": Twin(("pause",), ("pause",)),
    "/queues/{queue}/resume": Twin(("resume",), ("resume",)),
    "/queues/{queue}/messages": Twin(("send",), ("send",)),
    "/queues/{queue}/policy": Twin(("declare",), ("queues declare",)),
    "/queues/{queue}/flush": Twin(("flush",), ("flush",)),
    "/queues/{queue}/seek": Twin(("seek",), ("seek",)),
    # In place of a consumer: the token is read first.
    "/queues/{queue}/messages/{id}/settle": Twin(("leases", *SETTLEMENTS), ("leases", *SETTLEMENTS)),
    "/queues/{queue}/messages/{id}/redrive": Twin(("redrive",), ("redrive",)),
    "/queues/{queue}/messages/{id}/purge": Twin(("purge",), ("purge",)),
    "/queues/{queue}/dead/redrive": Twin(("redrive",), ("redrive",)),
    "/queues/{queue}/dead/purge": Twin(("purge",), ("purge",)),
    "/queues/{queue}/batches/{batch}/start": Twin(("start_batch",), ("batch start",)),
    "/queues/{queue}/batches/{batch}/cancel": Twin(("cancel_batch",), ("batch cancel",)),
    "/schedules/{schedule}/pause": Twin(("pause_schedule",), ("schedule pause",)),
    "/schedules/{schedule}/resume": Twin(("resume_schedule",), ("schedule resume",)),
    "/queues/{queue}/consumers/release": Twin(("deregister",), ("consumers",)),
    "/queues/{queue}/delete": Twin(("delete_queue",), ("queues delete",)),
    "/schedules": Twin(("put_schedule",), ("schedule add",)),
    "/schedules/{schedule}": Twin(("put_schedule",), ("schedule edit",)),
    "/schedules/{schedule}/remove": Twin(("remove_schedule",), ("schedule remove",)),
    "/schedules/{schedule}/run": Twin(("run_schedule",), ("schedule run",)),
}
# What pages show, for those who want to read it with a program.
SIGHTS = {
    "/": Twin(("list_queues", "stats"), ("status",)),
    "/queues/{queue}": Twin(("show_queue", "peek"), ("info", "peek")),
    "/queues/{queue}/messages/{id}": Twin(("find", "audit", "explain"), ("audit", "explain")),
    "/queues/{queue}/messages/{id}/payload": Twin(("payload",), ("peek",)),
    "/search": Twin(("find", "address", "show_batch", "archive"), ("explain", "batch show")),
    "/dead": Twin(("stats",), ("status",)),
    "/queues/{queue}/dead": Twin(("dead_letters",), ("dead",)),
    "/batches": Twin(("list_batches",), ("batch list",)),
    "/schedules": Twin(("list_schedules",), ("schedule list",)),
    "/consumers": Twin(("list_consumers", "list_processes"), ("consumers",)),
    "/queues/{queue}/messages": Twin(("messages",), ("messages",)),
    "/queues/{queue}/batches/{batch}": Twin(("show_batch", "list_members"), ("batch show", "batch members")),
    "/pipeline": Twin(("show_pipeline",), ("pipeline status",)),
}
# Parts of a page, its live updates, and files.
NO_SIGHTS = {"/events", "/events/changes", "/queues/{queue}/events", "/queues/{queue}/dead/ask", "/static/{path...}"}
NO_SIGHTS |= {"/pipeline/report", "/login", "/docs"}
# Forms of actions, which need the right of the action.
NO_SIGHTS |= {"/queues/{queue}/delete", "/schedules/{schedule}"}


def test_every_action_and_page_is_in_the_tables() -> None:
    actions = {route.pattern for route in ROUTES if route.method != "GET"} - BROWSERS_ONLY
    assert actions == set(ACTIONS)
    assert {route.pattern for route in ROUTES if route.method == "GET"} - NO_SIGHTS == set(SIGHTS)


@pytest.mark.parametrize("pattern", ACTIONS)
def test_the_api_has_the_action_with_the_same_right(pattern: str) -> None:
    check_rights(
        ACTIONS[pattern], {route.right for route in ROUTES if route.pattern == pattern and route.method != "GET"}
    )


@pytest.mark.parametrize("pattern", SIGHTS)
def test_the_api_has_the_page_with_the_same_right(pattern: str) -> None:
    check_rights(
        SIGHTS[pattern], {route.right for route in ROUTES if route.pattern == pattern and route.method == "GET"}
    )


def check_rights(twin: Twin, rights: set[Right]) -> None:
    assert {BY_NAME[name].right for name in twin.operations} == rights
    assert Right.NOTHING not in rights


def test_the_command_line_has_it() -> None:
    commands = {run.__name__ for several in PANELS.values() for run in several}
    commands |= {f"{family} {word}" for family, (_, _, members) in FAMILIES.items() for word in members}
    wanted = {command for twin in (*ACTIONS.values(), *SIGHTS.values()) for command in twin.commands}
    assert wanted <= commands


def test_a_consumer_is_released_on_the_command_line(cli: Cli) -> None:
    assert "--release" in cli.bare("consumers", "--help").stdout


@pytest.fixture
def cli(tmp_path_factory: pytest.TempPathFactory) -> Cli:
    return Cli(tmp_path_factory.mktemp("cli"))
