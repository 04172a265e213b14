"""An upgrade leaves exactly the functions of its version, whatever an earlier one had under their names."""

from __future__ import annotations

from typing import Any

import psycopg

from penstock import Store


def functions(connection: psycopg.Connection) -> list[Any]:
    return connection.execute(
        "select p.oid::regprocedure::text, p.proargnames, p.prosrc, p.proacl::text from pg_proc as p "
        "where p.pronamespace = 'penstock'::regnamespace order by 1"
    ).fetchall()


def test_functions_of_an_earlier_version_are_dropped_or_replaced(store: Store, watcher: psycopg.Connection) -> None:
    before = functions(watcher)
    for statement in (
        "create function penstock.gone() returns text language sql as 'select 1::text'",
        "create function penstock._gone() returns text language sql as 'select 1::text'",
        "create procedure penstock.gone_too() language sql as 'select 1'",
        "drop function penstock._job_name(text)",
        "create function penstock._job_name(_other text, _more text) returns integer language sql as 'select 1'",
        "create view public.own as select penstock._gone() as n",
        "update penstock.store set functions_digest = 'of an earlier version'",
    ):
        watcher.execute(statement.encode())
    store.migrate()
    left = functions(watcher)
    # What a view depends on stays.
    assert [row for row in left if row[0] == "penstock._gone()"]
    assert [row for row in left if row[0] != "penstock._gone()"] == before
