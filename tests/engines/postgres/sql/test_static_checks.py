"""Static checks of every function. PL/pgSQL itself looks at a statement only when it is executed, so a name that does
not exist would stay unnoticed in a branch that runs seldom."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import penstock
from tests.engines.postgres.sql import clusters
from tests.engines.postgres.sql.conftest import Sql, connect

CHECKER = clusters.CRON.with_name("plpgsql_check.so")
missing = [*clusters.missing, *([] if CHECKER.exists() else [str(CHECKER)])]
pytestmark = [
    pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}"),
    pytest.mark.xdist_group("pg_15"),
]

# The tables of a statement trigger get their names from the trigger.
CHECKS = """
    select p.oid::regprocedure::text, coalesce(c.lineno, 0), c.level, c.message
    from pg_proc as p
    join pg_language as l on l.oid = p.prolang and l.lanname = 'plpgsql'
    left join pg_trigger as t on t.tgfoid = p.oid and p.prorettype = 'trigger'::regtype
    cross join lateral plpgsql_check_function_tb(
        p.oid, coalesce(t.tgrelid, 0), fatal_errors => false, extra_warnings => true,
        oldtable => t.tgoldtable, newtable => t.tgnewtable
    ) as c
    where p.pronamespace = any (%s::regnamespace[]) and c.sqlstate is distinct from '42804'
"""
SQL_FUNCTIONS = """
    select p.oid, p.oid::regprocedure::text from pg_proc as p
    join pg_language as l on l.oid = p.prolang and l.lanname = 'sql'
    where p.pronamespace = any (%s::regnamespace[])
"""
SCHEMAS = ["penstock", "jobs", "messages"]
# Public parameters, and those of calls of the conventions, cannot be renamed or dropped. A receive assigns what
# set_config returns, because PERFORM would be slower.
KNOWN = (
    *("is reserved keyword", 'unused parameter "max_retries"', 'unused parameter "lease_duration_in"'),
    'never read variable "_ignored"',
)


@pytest.fixture(scope="module")
def sql() -> Iterator[Sql]:
    cluster = clusters.Cluster("pg_cron")
    cluster.start()
    try:
        with penstock.connect(cluster.url()) as store, connect(cluster.url()) as connection:
            store.migrate()
            sql = Sql(connection)
            sql("create extension pg_cron")
            sql("create extension plpgsql_check")
            sql("select penstock.create_queue_schema('jobs'), penstock.create_message_schema('messages')")
            yield sql
    finally:
        cluster.stop()
        cluster.remove()


def test_no_plpgsql_function_names_anything_that_does_not_exist(sql: Sql) -> None:
    found = [row for row in sql(CHECKS, SCHEMAS) if not row[3].endswith(KNOWN)]
    assert not found, "\n".join(f"{name}, line {line}: {level}: {message}" for name, line, level, message in found)


def test_no_sql_function_names_anything_that_does_not_exist(sql: Sql) -> None:
    functions = sql(SQL_FUNCTIONS, SCHEMAS)
    assert len(functions) > 100
    for oid, _ in functions:
        # Raises an error that names the function.
        sql("select pg_catalog.fmgr_sql_validator(%s)", oid)


def test_the_checks_find_a_name_in_a_branch_that_is_never_executed(sql: Sql) -> None:
    sql("create schema broken")
    sql("create function broken.seldom(_is_rare boolean) returns void language plpgsql as "
        "$$ begin if _is_rare then perform seq from penstock.log; end if; end $$")  # fmt: skip
    assert [message for _, _, _, message in sql(CHECKS, ["broken"])] == ['column "seq" does not exist']
