"""The driver's connection behind `transaction=`, also when the program holds it through SQLAlchemy or Django.

Neither is imported unless the caller's object comes from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.domain.errors import InvalidInput

if TYPE_CHECKING:
    from sqlalchemy import Connection


class LockedConnection(NamedTuple):
    """An asynchronous connection whose lock is held while the engine uses it in a thread."""

    connection: object


def driver_connection(transaction: object) -> object:
    """The driver's connection, in a transaction that SQLAlchemy knows of; any other object unchanged."""
    packages = _packages(transaction)
    if "sqlalchemy" in packages:
        return _of_sqlalchemy(transaction)
    if "django" in packages:
        return _of_django(transaction)
    if "psycopg" in packages:
        return _of_psycopg(transaction)
    return transaction


async def opened(transaction: object) -> object:
    """The same, after connecting asynchronous sessions and connections of SQLAlchemy, which must be awaited."""
    if _is_asynchronous(transaction):
        from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session

        if isinstance(transaction, AsyncSession | async_scoped_session):
            transaction = await transaction.connection()
        if isinstance(transaction, AsyncConnection) and transaction.sync_connection is None:
            await transaction.start()
    return driver_connection(transaction)


def driver_name(connection: object) -> str:
    """The package that a connection comes from, such as psycopg2, asyncpg or sqlite3."""
    return type(connection).__module__.partition(".")[0]


def _packages(value: object) -> set[str]:
    """The packages of a value's classes, including base classes such as SQLAlchemy's Session."""
    return {kind.__module__.partition(".")[0] for kind in type(value).__mro__}


def _of_sqlalchemy(transaction: object) -> object:
    connection = _sqlalchemy_connection(transaction)
    if connection is None:
        return transaction
    if connection.closed:
        raise InvalidInput("transaction: this connection is closed")
    # SQLAlchemy does not see statements that bypass it: on commit it would roll back a transaction it did not begin.
    if not connection.in_transaction():
        connection.begin()
    return connection.connection.driver_connection


def _sqlalchemy_connection(transaction: object) -> Connection | None:
    """The connection of a session or asynchronous connection; None for other objects."""
    from sqlalchemy import Connection
    from sqlalchemy.exc import MissingGreenlet
    from sqlalchemy.orm import Session, scoped_session

    found: Any = _blocking_side(transaction) if _is_asynchronous(transaction) else transaction
    if isinstance(found, scoped_session):
        found = found()
    if isinstance(found, Session):
        try:
            found = found.connection()
        except MissingGreenlet:
            raise InvalidInput(
                f"transaction: this AsyncSession has no connection yet: await session.connection() first, or {_AWAIT}"
            ) from None
    return found if isinstance(found, Connection) else None


def _is_asynchronous(value: object) -> bool:
    """Decided from class names: without greenlet the asynchronous part of SQLAlchemy cannot be imported."""
    return any(kind.__module__.startswith("sqlalchemy.ext.asyncio") for kind in type(value).__mro__)


def _blocking_side(transaction: object) -> object:
    """The synchronous session or connection of an asynchronous one."""
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session

    found: Any = transaction() if isinstance(transaction, async_scoped_session) else transaction
    if isinstance(found, AsyncSession):
        return found.sync_session
    if isinstance(found, AsyncConnection) and found.sync_connection is None:
        raise InvalidInput(f"transaction: this connection is not started: {_AWAIT}")
    return found.sync_connection if isinstance(found, AsyncConnection) else found


_AWAIT = "use the asynchronous client (penstock.connect_async), which opens it"


def _of_django(transaction: Any) -> object:
    """`django.db.connection` or one of `connections`, connected if it was not yet."""
    if not hasattr(transaction, "ensure_connection"):
        return transaction
    if transaction.needs_rollback:
        raise InvalidInput("transaction: a statement in this atomic block failed; leave the block first")
    transaction.ensure_connection()
    return transaction.connection


def _of_psycopg(transaction: object) -> object:
    """The connection of a psycopg transaction block."""
    from psycopg import AsyncTransaction, Transaction

    return transaction.connection if isinstance(transaction, Transaction | AsyncTransaction) else transaction
