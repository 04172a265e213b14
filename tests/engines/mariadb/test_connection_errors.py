"""Bad input when a store is opened or used: each error says what to set."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

import penstock
from penstock.engines.mariadb.pool import check_version
from tests.engines.mariadb.server import fresh_database, own_connection, server

SECRET = secrets.token_hex(8)


@pytest.fixture
def user(url: str) -> Iterator[str]:
    """A user with a password and no rights."""
    name = f"user_{secrets.token_hex(4)}"
    admin = own_connection(url, autocommit=True)
    with admin.cursor() as cursor:
        cursor.execute(f"create user {name}@localhost identified by '{SECRET}'")
        yield name
        cursor.execute(f"drop user {name}@localhost")
    admin.close()


def grant(url: str, user: str, rights: str) -> None:
    database = urlsplit(url).path.removeprefix("/")
    admin = own_connection(url, autocommit=True)
    with admin.cursor() as cursor:
        cursor.execute(f"grant {rights} on `{database}`.* to {user}@localhost")
    admin.close()


def url_of(url: str, user: str, password: str = SECRET) -> str:
    return server().url(urlsplit(url).path.removeprefix("/"), user, password)


def refused(url: str, error: type[penstock.PenstockError], text: str) -> None:
    with penstock.connect(url) as store, pytest.raises(error, match=text) as raised:
        store.queue("orders").send(b"1")
    assert SECRET not in str(raised.value)


def test_a_wrong_password_is_named(url: str, user: str) -> None:
    refused(url_of(url, user, "wrong"), penstock.NotAStore, "check user and password in the URL")


def test_a_user_without_rights_is_told_to_get_them(url: str, user: str) -> None:
    refused(url_of(url, user), penstock.NotAStore, "grant the user rights on the database")


def test_a_user_who_may_not_write_is_told_which_rights_are_missing(url: str, user: str) -> None:
    grant(url, user, "select")
    refused(url_of(url, user), penstock.StoreError, "grant the user select, insert, update and delete")


def test_the_least_rights_are_enough(url: str, user: str) -> None:
    grant(url, user, "select, insert, update, delete")
    with penstock.connect(url_of(url, user)) as store:
        queue = store.queue("orders")
        queue.send(b"1")
        [delivery] = queue.receive()
        delivery.nak("later", delay_seconds=0)
        store.sweep()
        queue.flush()
        assert {check.level for check in store.doctor()} == {"ok"}


def test_a_missing_database_is_named() -> None:
    refused(server().url("nowhere"), penstock.NotAStore, "create the database first")


def test_a_database_without_the_schema_asks_for_migrate(url: str) -> None:
    name = f"bare_{secrets.token_hex(4)}"
    admin = own_connection(url, autocommit=True)
    with admin.cursor() as cursor:
        cursor.execute(f"create database {name}")
    admin.close()
    refused(server().url(name), penstock.SchemaMissing, "penstock migrate")
    with penstock.connect(server().url(name)) as store:
        assert store.migrate() == ["001_log_and_groups"]
        assert store.migrate() == []


def test_the_rights_of_a_migration_are_enough(url: str, user: str) -> None:
    name = f"bare_{secrets.token_hex(4)}"
    admin = own_connection(url, autocommit=True)
    with admin.cursor() as cursor:
        cursor.execute(f"create database {name}")
        cursor.execute(
            "grant select, insert, update, delete, create, alter, index, drop, create view "
            f"on {name}.* to {user}@localhost"
        )
    admin.close()
    with penstock.connect(server().url(name, user, SECRET)) as store:
        assert store.migrate()
        store.queue("orders").send(b"1")
        assert {check.level for check in store.doctor()} == {"ok"}


def test_an_unreachable_server_is_named() -> None:
    refused("mysql://root@localhost/app?unix_socket=/nowhere/socket", penstock.StoreUnavailable, "cannot be reached")


def test_a_read_only_server_is_named(url: str, user: str) -> None:
    grant(url, user, "select, insert, update, delete")
    admin = own_connection(url, autocommit=True)
    with admin.cursor() as cursor:
        cursor.execute("set global read_only = 1")
        try:
            refused(url_of(url, user), penstock.StoreReadOnly, "connect to the primary server")
        finally:
            cursor.execute("set global read_only = 0")
    admin.close()


def test_a_call_larger_than_a_packet_names_the_setting(url: str) -> None:
    admin = own_connection(url, autocommit=True)
    with admin.cursor() as cursor:
        cursor.execute("set global max_allowed_packet = 1048576")
        try:
            with penstock.connect(url) as store:
                queue = store.queue("orders")
                with pytest.raises(penstock.PayloadTooLarge, match="max_allowed_packet is 1,048,576; raise it there"):
                    queue.send(b"x" * 1_000_000)
                queue.send_many([b"x" * 10_000] * 200)
                assert len(queue.receive(limit=1000)) == 200
                warnings = {check.name for check in store.doctor() if check.level == "warning"}
                assert warnings == {"packet"}
        finally:
            cursor.execute("set global max_allowed_packet = 1073741824")
    admin.close()


def test_tables_are_transactional_and_names_binary_whatever_the_servers_defaults() -> None:
    admin = server().connect(autocommit=True)
    with admin.cursor() as cursor:
        cursor.execute("set global default_storage_engine = MyISAM")
        try:
            url = fresh_database()
        finally:
            cursor.execute("set global default_storage_engine = InnoDB")
    admin.close()
    with penstock.connect(url) as store:
        for name in ("a", "A", "a ", "å"):
            store.queue(name).send(name.encode())
        assert [info.name for info in store.queues()] == ["A", "a", "a ", "å"]
        assert {check.level for check in store.doctor()} == {"ok"}


def test_a_table_without_transactions_is_found(url: str, store: penstock.Store) -> None:
    admin = own_connection(url, autocommit=True)
    with admin.cursor() as cursor:
        cursor.execute("alter table penstock_mark engine = MyISAM")
        try:
            [found] = [check for check in store.doctor() if check.level == "error"]
        finally:
            cursor.execute("alter table penstock_mark engine = InnoDB")
    admin.close()
    assert "table penstock_mark uses the storage engine MyISAM" in found.finding


def test_a_database_of_another_character_set_takes_every_name_and_text() -> None:
    name = f"latin_{secrets.token_hex(4)}"
    admin = server().connect(autocommit=True)
    with admin.cursor() as cursor:
        cursor.execute(f"create database {name} character set latin1")
    admin.close()
    with penstock.connect(server().url(name)) as store:
        store.migrate()
        queue = store.queue("jörg 🚰")
        queue.send("ß🚰", headers={"ключ": "値"}, address="ä")
        [delivery] = queue.receive()
        delivery.nak("ошибка 🚰", delay_seconds=0)
        [delivery] = queue.receive()
    assert (delivery.json(), delivery.headers, delivery.address) == ("ß🚰", {"ключ": "値"}, "ä")


@pytest.mark.parametrize("version", ["10.5.29-MariaDB", "5.5.5-10.5.9-MariaDB-log", "8.0.35", "5.7.44-log", "newest"])
def test_an_old_server_is_refused(version: str) -> None:
    with pytest.raises(penstock.EngineTooOld, match=r"needs MariaDB 10\.6 or MySQL 8\.0\.36"):
        check_version(version)


@pytest.mark.parametrize("version", ["10.6.0-MariaDB", "5.5.5-10.11.6-MariaDB", "12.0.2-MariaDB", "8.0.36", "9.7.4-2"])
def test_a_new_server_is_accepted(version: str) -> None:
    check_version(version)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("mysql://localhost", "names no database"),
        ("mysql://localhost/app?sslca=1", "unknown URL parameter 'sslca'.*ssl_ca"),
        ("mysql://localhost:port/app", "'port' is not a port"),
        ("mysql://localhost/app?connect_timeout=soon", "connect_timeout is a number of seconds"),
    ],
)
def test_a_malformed_url_is_refused(url: str, text: str) -> None:
    with pytest.raises(penstock.InvalidUrl, match=text):
        penstock.connect(url)


@pytest.mark.parametrize("setting", ["sql_select_limit = 1", "sql_safe_updates = 1", "completion_type = 1"])
def test_defaults_for_people_at_a_console_change_nothing(url: str, setting: str) -> None:
    name = setting.partition(" ")[0]
    admin = own_connection(url, autocommit=True)
    with admin.cursor() as cursor:
        cursor.execute(f"set global {setting}")
        try:
            with penstock.connect(url) as store:
                queue = store.queue("orders")
                queue.send_many([b"1", b"2", b"3"])
                assert [one.payload for one in queue.receive(limit=10)] == [b"1", b"2", b"3"]
        finally:
            cursor.execute(f"set global {name} = default")
    admin.close()
