"""Sends on the caller's own connection, which commit with the caller's writes."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from penstock.domain.errors import InvalidInput
from penstock.domain.validation import shown
from penstock.engines.caller_connection import driver_connection, driver_name
from penstock.engines.mariadb import errors
from penstock.engines.mariadb.transaction import SQL, MariadbTransaction

# Drivers whose `cursor.execute(text)` sends the text as it is.
DRIVERS = ("pymysql", "MySQLdb", "mariadb", "mysql")
READ_COMMITTED = "READ-COMMITTED"
REPEATABLE_READ = "REPEATABLE-READ"
SERIALIZABLE = "SERIALIZABLE"


def check_connection(transaction: object) -> Callable[[], Any]:
    """What makes plain cursors of the driver's connection, also behind SQLAlchemy or Django."""
    connection: Any = driver_connection(transaction)
    if driver_name(connection) not in DRIVERS or not hasattr(connection, "cursor"):
        raise InvalidInput(f"transaction takes an open connection of PyMySQL or mysqlclient, not {shown(transaction)}")
    if _is_autocommitting(connection):
        raise InvalidInput("transaction: this connection commits every statement by itself: turn autocommit off")
    return _plain_cursors(connection)


def _plain_cursors(connection: Any) -> Callable[[], Any]:
    """Cursors with rows as tuples, whatever kind the program has chosen for its own."""
    driver = driver_name(connection)
    if driver not in ("pymysql", "MySQLdb"):
        return lambda: connection.cursor()
    kind = import_module(f"{driver}.cursors").Cursor
    return lambda: connection.cursor(kind)


def _is_autocommitting(connection: Any) -> bool:
    """Whether statements outside a transaction commit alone. A transaction that was begun is enough."""
    asked = getattr(connection, "get_autocommit", None)
    if asked is None or not asked():
        return False
    cursor = _plain_cursors(connection)()
    try:
        for statement in SQL.probe_transaction.split(";\n"):
            cursor.execute(statement)
    except Exception as error:
        if errors.code_of(error) != errors.NO_SAVEPOINT:
            raise
        return True
    finally:
        cursor.close()
    return False


def check_database(transaction: MariadbTransaction, expected: str) -> None:
    """Refuse a connection to another database: its tables would not be those of the store."""
    database = transaction.value("current_database")
    if database != expected:
        raise InvalidInput(
            f"transaction takes a connection to the store's own database {shown(expected)}, not to {shown(database)}"
        )


def check_isolation(transaction: MariadbTransaction, needs_latest: bool) -> None:
    """Refuse a transaction whose reads lock the queue, and one that may read an older snapshot where the send needs the
    latest: it would not see an address that others have sent since."""
    level = transaction.rows("isolation")[0][1]
    if level == READ_COMMITTED or (level == REPEATABLE_READ and not needs_latest):
        return
    reason = "reads lock what they have read" if level == SERIALIZABLE else "a send does not see what others committed"
    what = " with an address or in a batch" if needs_latest else ""
    raise InvalidInput(
        f"transaction: this connection is {level}, in which {reason}; a send{what} needs `set session transaction "
        "isolation level read committed` before the transaction begins"
    )


def is_driver_error(error: BaseException) -> bool:
    return any(kind.__module__.partition(".")[0] in DRIVERS for kind in type(error).__mro__)
