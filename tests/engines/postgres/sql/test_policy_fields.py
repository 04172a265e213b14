"""`penstock.declare` checks every policy field by the table of the domain."""

from __future__ import annotations

import msgspec
import psycopg
import pytest

import penstock
from penstock.domain.policy import FIELDS, PolicyField
from tests.domain.policy_values import accepted, refused
from tests.engines.postgres.sql.conftest import Sql


def declare(sql: Sql, field: str, value: object) -> None:
    sql("select penstock.declare('orders', %s::jsonb)", msgspec.json.encode({field: value}).decode())


def test_columns_of_a_new_queue_have_the_defaults_of_the_table(sql: Sql) -> None:
    columns = ", ".join(FIELDS)
    [row] = sql(f"select {columns} from penstock.declare('orders')")
    assert dict(zip(FIELDS, row, strict=True)) == {name: field.default for name, field in FIELDS.items()}


@pytest.mark.parametrize("field", FIELDS.values(), ids=FIELDS)
def test_values_within_the_bounds_are_accepted_and_read_back(
    sql: Sql, store: penstock.Store, field: PolicyField
) -> None:
    for value in accepted(field):
        declare(sql, field.name, value)
        assert getattr(store.queue("orders").policy(), field.name) == value


@pytest.mark.parametrize("field", FIELDS.values(), ids=FIELDS)
def test_values_beyond_the_bounds_are_refused(sql: Sql, field: PolicyField) -> None:
    for value in refused(field):
        with pytest.raises(psycopg.Error, match=field.name) as raised:
            declare(sql, field.name, value)
        assert raised.value.sqlstate in ("PN101", "PN102"), value
