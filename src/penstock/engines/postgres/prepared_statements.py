"""Prepared statements of a connection, called by name.

This is below the cursors of psycopg, which cost more per call (docs/decisions/0207), and uses what they are built from:
the same dumpers and loaders, and the same wait, which a signal can interrupt.

A name is derived from the statement's text and types, so it denotes the same statement in every session, whoever
prepared it. Behind a pooler, whose sessions are shared by many clients, nothing is prepared.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from itertools import count
from typing import Any

from psycopg import Connection, OperationalError, errors, generators
from psycopg.adapt import PyFormat, Transformer
from psycopg.pq import ExecStatus, Format, TransactionStatus
from psycopg.pq.abc import PGresult

from penstock.engines.statements import Statements

Rows = list[tuple[Any, ...]]
SQL = Statements("penstock.engines.postgres", "sql/connection.sql")
# The session lacks the statement, another client prepared it, or its result type has changed with an upgrade.
OUTDATED = (errors.InvalidSqlStatementName, errors.DuplicatePreparedStatement, errors.FeatureNotSupported)
_ATTRIBUTE = "penstock_prepared"


def rows(connection: Connection, statement: str, parameters: Sequence[Any], has_name: bool = True) -> Rows:
    """Run a statement. With a name it is prepared at its first use, unless the session is shared through a pooler."""
    known: Prepared | None = connection.__dict__.get(_ATTRIBUTE)
    if known is None:
        known = connection.__dict__[_ATTRIBUTE] = Prepared(connection)
    return known.rows(statement, parameters, has_name)


def is_pooled(connection: Connection) -> bool:
    """Whether a pooler stands between client and server: then the session has another process id."""
    found = _Statement(connection, SQL.session).unnamed(())
    return bool(found[0][0] != connection.pgconn.backend_pid)


class Prepared:
    """The prepared statements of one connection, kept as an attribute of it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._statements: dict[str, _Statement] = {}
        # Determined when the first name is needed.
        self._is_ours: bool | None = None

    def rows(self, statement: str, parameters: Sequence[Any], has_name: bool) -> Rows:
        known = self._statements.get(statement)
        if known is None:
            known = self._statements[statement] = _Statement(self._connection, statement)
        if has_name and self._is_ours is None:
            self._is_ours = not is_pooled(self._connection)
        if has_name and self._is_ours:
            try:
                return known.named(parameters)
            except OUTDATED:
                # Names are not reliable here. The call had no effect, but an open transaction is aborted.
                self._is_ours = False
                if self._connection.pgconn.transaction_status != TransactionStatus.IDLE:
                    raise
        return known.unnamed(parameters)


class _Statement:
    def __init__(self, connection: Connection, text: str) -> None:
        places = count(1)
        self._connection = connection
        self._text = re.sub("%s", lambda _: f"${next(places)}", text).encode()
        self._formats = [PyFormat.AUTO] * (next(places) - 1)
        self._transformer = Transformer(connection)
        # By the types of the parameters: psycopg picks an integer type by the size of the number.
        self._names: dict[tuple[int, ...], bytes] = {}

    def named(self, parameters: Sequence[Any]) -> Rows:
        values, types = self._dumped(parameters)
        name = self._names.get(types) or self._prepare(types)
        self._connection.pgconn.send_query_prepared(
            name, values, self._transformer.formats, result_format=Format.BINARY
        )
        return self._rows()

    def unnamed(self, parameters: Sequence[Any]) -> Rows:
        """Parse and execute in one message, which a pooler sends to one session."""
        values, types = self._dumped(parameters)
        self._connection.pgconn.send_query_params(
            self._text, values, types, self._transformer.formats, result_format=Format.BINARY
        )
        return self._rows()

    def _dumped(self, parameters: Sequence[Any]) -> tuple[Sequence[Any], tuple[int, ...]]:
        values = self._transformer.dump_sequence(parameters, self._formats)
        return values, self._transformer.types or ()

    def _prepare(self, types: tuple[int, ...]) -> bytes:
        digest = hashlib.blake2b(self._text + repr(types).encode(), digest_size=16).hexdigest()
        name = f"penstock_{digest}".encode()
        self._connection.pgconn.send_prepare(name, self._text, param_types=types)
        self._answer()
        self._names[types] = name
        return name

    def _rows(self) -> Rows:
        result = self._answer()
        self._transformer.set_pgresult(result)
        try:
            return self._transformer.load_rows(0, result.ntuples, tuple)
        finally:
            self._transformer.set_pgresult(None)

    def _answer(self) -> PGresult:
        result: PGresult = self._connection.wait(generators.execute(self._connection.pgconn))[-1]
        if result.status in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
            return result
        if result.status == ExecStatus.FATAL_ERROR:
            raise errors.error_from_result(result)
        raise OperationalError(f"the server answered with {ExecStatus(result.status).name}")
