"""Statements that a connection has prepared, called by their names.

A cursor of psycopg can do this too, but one for every call costs more processor time than the call itself. What is used
here is what its cursors are made of: the same dumpers and loaders, the same way to wait, which a signal can interrupt.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import count
from typing import Any

from psycopg import Connection, OperationalError, errors, generators
from psycopg.adapt import PyFormat, Transformer
from psycopg.pq import ExecStatus, Format
from psycopg.pq.abc import PGresult

Rows = list[tuple[Any, ...]]
# The server has forgotten the statement, or its answer has another shape since an upgrade.
OUTDATED = (errors.InvalidSqlStatementName, errors.FeatureNotSupported)
_ATTRIBUTE = "penstock_prepared"


def rows(connection: Connection, statement: str, parameters: Sequence[Any]) -> Rows:
    """Call a statement, which is prepared at its first call."""
    known: Prepared | None = connection.__dict__.get(_ATTRIBUTE)
    if known is None:
        known = connection.__dict__[_ATTRIBUTE] = Prepared(connection)
    return known.rows(statement, parameters)


class Prepared:
    """What one connection has prepared. It belongs to the connection, as an attribute, and goes with it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._statements: dict[str, _Statement] = {}
        self._numbers = count()

    def rows(self, statement: str, parameters: Sequence[Any]) -> Rows:
        known = self._statements.get(statement)
        if known is None:
            known = self._statements[statement] = _Statement(self._connection, statement, self._numbers)
        try:
            return known.rows(parameters)
        except OUTDATED:
            self._statements.clear()
            raise


class _Statement:
    def __init__(self, connection: Connection, text: str, numbers: count[int]) -> None:
        places = count(1)
        self._connection = connection
        self._text = re.sub("%s", lambda _: f"${next(places)}", text).encode()
        self._formats = [PyFormat.AUTO] * (next(places) - 1)
        self._transformer = Transformer(connection)
        self._numbers = numbers
        # By the types of the parameters: a small number is another type than a large one.
        self._names: dict[tuple[int, ...], bytes] = {}

    def rows(self, parameters: Sequence[Any]) -> Rows:
        transformer = self._transformer
        values = transformer.dump_sequence(parameters, self._formats)
        types = transformer.types or ()
        name = self._names.get(types) or self._prepare(types)
        self._connection.pgconn.send_query_prepared(name, values, transformer.formats, result_format=Format.BINARY)
        result = self._answer()
        transformer.set_pgresult(result)
        try:
            return transformer.load_rows(0, result.ntuples, tuple)
        finally:
            transformer.set_pgresult(None)

    def _prepare(self, types: tuple[int, ...]) -> bytes:
        name = f"penstock_{next(self._numbers)}".encode()
        self._connection.pgconn.send_prepare(name, self._text, param_types=types)
        self._answer()
        self._names[types] = name
        return name

    def _answer(self) -> PGresult:
        result: PGresult = self._connection.wait(generators.execute(self._connection.pgconn))[-1]
        if result.status in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
            return result
        if result.status == ExecStatus.FATAL_ERROR:
            raise errors.error_from_result(result)
        raise OperationalError(f"the server answered with {ExecStatus(result.status).name}")
