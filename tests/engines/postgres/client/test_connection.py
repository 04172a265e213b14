"""Opening a store on a server: errors for a missing, newer, unreachable or forbidden one."""

from __future__ import annotations

import psycopg
import pytest

import penstock
from penstock import InvalidUrl, NotAStore, Queue, SchemaMissing, SchemaTooNew, Store, StoreUnavailable
from penstock.domain.errors import StoreError, StoreReadOnly
from tests.conformance.assertions import payloads, take_all
from tests.conformance.clients import Opener
from tests.engines.postgres.server import fresh_database


def test_a_database_without_the_schema_says_how_to_make_it() -> None:
    with penstock.connect(fresh_database(migrated=False)) as store:
        with pytest.raises(SchemaMissing, match="penstock migrate"):
            store.queue("orders").send(1)
        assert store.migrate()
        assert store.migrate() == []
        store.queue("orders").send(1)
        assert len(store.queue("orders").receive()) == 1


def test_a_newer_schema_is_refused(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute("select schema_version from penstock.store").fetchone()
        assert row is not None
        connection.execute("update penstock.store set schema_version = 99")
        try:
            with penstock.connect(url) as store:
                with pytest.raises(SchemaTooNew, match="99"):
                    store.queue("orders").send(1)
                with pytest.raises(SchemaTooNew, match="99"):
                    store.migrate()
        finally:
            connection.execute("update penstock.store set schema_version = %s", row)


@pytest.mark.parametrize(
    ("wrong", "error", "said"),
    [
        ("postgresql://nobody@127.0.0.1:1/none", StoreUnavailable, "cannot be reached"),
        ("postgresql://postgres@/nowhere?unknown=1", InvalidUrl, "unknown"),
    ],
)
def test_a_server_that_cannot_be_reached_is_named(wrong: str, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said), penstock.connect(wrong, busy_seconds=2) as store:
        store.queue("orders").send(1)


def test_a_database_that_is_not_there_is_named(url: str) -> None:
    missing = url.replace("/test_", "/missing_")
    with pytest.raises(NotAStore, match="missing_"), penstock.connect(missing) as store:
        store.queue("orders").send(1)


def test_a_call_that_takes_too_long_is_undone(url: str, open_store: Opener) -> None:
    """Only the call that has to wait is in a hurry: a busy machine may take its time for the others."""
    queue = open_store().queue("orders")
    queue.send(1)
    with penstock.connect(f"{url}&options=-c%20statement_timeout%3D300ms") as hurried, psycopg.connect(url) as holder:
        holder.execute("lock table penstock.log in access exclusive mode")
        with pytest.raises(StoreUnavailable, match=r"statement_timeout.*nothing was changed"):
            hurried.queue("orders").send(2)
    assert payloads(queue.receive(limit=10)) == [1]


def test_a_session_that_may_only_read_is_refused_by_name(url: str) -> None:
    with penstock.connect(f"{url}&options=-c%20default_transaction_read_only%3Don") as store:
        with pytest.raises(StoreReadOnly, match="read-only"):
            store.queue("orders").send(1)


def test_a_role_without_rights_is_told_so(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("drop role if exists penstock_stranger")
        connection.execute("create role penstock_stranger login")
    with penstock.connect(url.replace("postgres@", "penstock_stranger@")) as store:
        with pytest.raises(StoreError, match="permission denied"):
            store.queue("orders").send(1)


def test_a_connection_that_was_cut_is_replaced(open_store: Opener, url: str) -> None:
    store = open_store(pool=None)
    queue = store.queue("orders")
    queue.send(1)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = current_database() "
            "and pid <> pg_backend_pid()"
        )
    queue.send(2)
    assert payloads(take_all(queue)) == [1, 2]


def test_a_receive_under_another_isolation_is_refused(queue: Queue, store: Store, url: str) -> None:
    queue.send(1)
    with psycopg.connect(url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        with pytest.raises(psycopg.Error, match="read committed"):
            connection.execute("select * from penstock.receive_messages('orders', null, 'c', 1)")


def test_without_listening_and_prepared_statements_everything_works(open_store: Opener) -> None:
    """As behind a pooler in transaction mode."""
    queue = open_store(clock=None, pool=None, listen=False, prepare=False).queue("orders")
    queue.send(1)
    [delivery] = queue.receive(wait_seconds=5)
    delivery.nak(delay_seconds=0.2)
    [again] = queue.receive(wait_seconds=5)
    assert again.attempt == 2
