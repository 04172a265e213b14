"""What an error says to whoever gave a wrong value, also over a network: nothing about the server behind it."""

from __future__ import annotations

import psycopg
import pytest

from penstock import InvalidInput, StoreError
from penstock.engines.postgres.errors import translate

NAME = "database payments on db-7.internal"


@pytest.mark.parametrize(
    "error", [psycopg.errors.NumericValueOutOfRange, psycopg.errors.UntranslatableCharacter, psycopg.DataError]
)
def test_a_refused_value_does_not_name_the_database(error: type[psycopg.Error]) -> None:
    told = translate(error("out of range"), NAME)
    assert isinstance(told, InvalidInput)
    assert "payments" not in str(told)


def test_a_failing_database_is_named_to_who_uses_it() -> None:
    told = translate(psycopg.errors.IoError("could not read block 7"), NAME)
    assert isinstance(told, StoreError)
    assert NAME in str(told)
