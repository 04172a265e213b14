"""The TypedDicts of keyword options agree with the signatures."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

import pytest

import penstock
from penstock.engines.postgres import open_postgres
from penstock.engines.sqlite import open_sqlite
from penstock.workers.app import make_handler


def test_policy_fields_are_the_policy() -> None:
    assert get_type_hints(penstock.PolicyFields) == get_type_hints(penstock.Policy)


def test_send_options_are_those_of_a_message_and_of_send() -> None:
    options = get_type_hints(penstock.SendOptions)
    assert {**options, "payload": Any} == get_type_hints(penstock.Outgoing)
    assert {**options, "payload": Any, "transaction": object} == _parameters(penstock.Queue.send)


def test_schedule_options_are_those_of_the_store() -> None:
    own = {"name", "cron", "queue", "payload"}
    taken = {name: kind for name, kind in _parameters(penstock.Store.schedule).items() if name not in own}
    assert get_type_hints(penstock.ScheduleOptions) == taken


def test_handler_options_are_the_policy_and_those_of_a_handler() -> None:
    options = get_type_hints(penstock.HandlerOptions)
    own = set(penstock.Handler.__struct_fields__) - {"queue", "function", "signature", "policy"}
    assert set(options) == own | set(penstock.Policy.__struct_fields__)


@pytest.mark.parametrize("option", get_type_hints(penstock.HandlerOptions))
def test_every_handler_option_is_taken(option: str) -> None:
    default = getattr(penstock.Policy(), option, None)
    given = default if default is not None else "thread" if option == "run" else 1
    options = {option: "group" if option == "group" else given}
    if option == "batch_seconds":
        options["batch_size"] = 1
    make_handler("orders", print, options)


@pytest.mark.parametrize("opener", [open_sqlite, open_postgres])
def test_connect_settings_are_those_of_the_engines(opener: Callable[..., Any]) -> None:
    known = inspect.get_annotations(penstock.ConnectSettings)
    assert set(list(inspect.signature(opener).parameters)[1:]) <= set(known)


def test_no_connect_setting_is_unknown_to_all_engines() -> None:
    taken = {*inspect.signature(open_sqlite).parameters, *inspect.signature(open_postgres).parameters}
    assert set(inspect.get_annotations(penstock.ConnectSettings)) <= taken


def _parameters(function: Callable[..., Any]) -> dict[str, Any]:
    return {name: kind for name, kind in get_type_hints(function).items() if name != "return"}
