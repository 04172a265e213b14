"""An upgrade leaves exactly the internal functions of its version, whatever an earlier one had under their names."""

from __future__ import annotations

from typing import Any

import psycopg

from penstock import Store
from tests.engines.postgres.fixtures import Begin

# A call that is planned with a function, and waits before it runs it: the planner calls what is immutable.
WAITING_CALL = """
create function public.replaced() returns boolean language plpgsql as 'begin return true; end';
create function public.wait() returns boolean immutable language plpgsql as
    'begin perform pg_advisory_lock(7); perform from penstock.queue; return true; end';
create or replace function penstock.claim_sweep(every_seconds double precision) returns boolean language plpgsql as
    'begin return public.wait() and public.replaced(); end';
select pg_advisory_lock(7)
"""
REPLACE = """
drop function public.replaced();
create function public.replaced() returns boolean language plpgsql as 'begin return true; end';
select pg_advisory_unlock(7)
"""


def functions(connection: psycopg.Connection) -> list[Any]:
    return connection.execute(
        "select p.oid::regprocedure::text, p.proargnames, p.prosrc, p.proacl::text from pg_proc as p "
        "where p.pronamespace = 'penstock'::regnamespace order by 1"
    ).fetchall()


def test_functions_of_an_earlier_version_are_dropped_or_replaced(store: Store, watcher: psycopg.Connection) -> None:
    before = functions(watcher)
    for statement in (
        "create function penstock._gone() returns text language sql as 'select 1::text'",
        "create procedure penstock._gone_too() language sql as 'select 1'",
        "create function penstock._used() returns text language sql as 'select 1::text'",
        "create view public.own as select penstock._used() as n",
        "create function penstock.own() returns text language sql as 'select 1::text'",
        "drop function penstock._job_name(text)",
        "create function penstock._job_name(_other text, _more text) returns integer language sql as 'select 1'",
        "update penstock.store set functions_digest = 'of an earlier version'",
    ):
        watcher.execute(statement.encode())
    store.migrate()
    left = functions(watcher)
    # A function that a view depends on stays, and so does one of a user.
    kept = {"penstock._used()", "penstock.own()"}
    assert {row[0] for row in left} - {row[0] for row in before} == kept
    assert [row for row in left if row[0] not in kept] == before


def test_a_call_whose_function_is_replaced_meanwhile_is_repeated(
    store: Store, watcher: psycopg.Connection, begin: Begin
) -> None:
    """The server reports `cache lookup failed for function` then."""
    watcher.execute(WAITING_CALL.encode())
    call = begin(lambda: store.engine.claim_sweep(1))
    watcher.execute(REPLACE.encode())
    assert call.result() is True
