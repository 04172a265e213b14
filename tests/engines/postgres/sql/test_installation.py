"""Installing without being a superuser, with and without the right to make roles, on the oldest supported version."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

import penstock
from tests.engines.postgres.sql import clusters
from tests.engines.postgres.sql.conftest import Sql, connect

pytestmark = [
    pytest.mark.skipif(bool(clusters.missing), reason=f"not installed: {', '.join(clusters.missing)}"),
    pytest.mark.xdist_group("pg_15"),
]


@pytest.fixture(scope="module")
def new_cluster() -> Iterator[clusters.Cluster]:
    """A cluster without the roles of Penstock, which belong to the cluster."""
    cluster = clusters.Cluster("")
    cluster.start()
    yield cluster
    cluster.stop()
    cluster.remove()


def test_whoever_owns_the_database_installs_and_one_who_may_adds_the_roles(new_cluster: clusters.Cluster) -> None:
    with connect(new_cluster.url()) as connection:
        owner = Sql(connection)
        owner("create role plain login")
        owner("create database plain owner plain")
    url = new_cluster.url("plain")
    with penstock.connect(url.replace("postgres@", "plain@")) as store:
        store.migrate()
        store.queue("q").send({"n": 22})
    with connect(url.replace("postgres@", "plain@")) as connection:
        plain = Sql(connection)
        assert plain("select to_regrole('penstock_admin')") == [(None,)]
        plain("select penstock.create_queue_schema('jobs')")
        plain("call jobs.enqueue('23')")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            plain("select penstock.grant_roles()")
    with connect(url) as connection:
        owner = Sql(connection)
        owner("select penstock.grant_roles()")
        owner("create role app login")
        owner("grant penstock_consumer to app")
    with connect(url.replace("postgres@", "app@")) as connection:
        app = Sql(connection)
        assert app("select msg_json from jobs.dequeue('app')") == [(23,)]
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            app("call jobs.enqueue('24')")


def test_a_second_database_of_the_cluster_shares_the_roles(new_cluster: clusters.Cluster) -> None:
    with connect(new_cluster.url()) as connection:
        owner = Sql(connection)
        owner("create role maker login createrole")
        owner("create database made owner maker")
    url = new_cluster.url("made").replace("postgres@", "maker@")
    with penstock.connect(url) as store:
        store.migrate()
        assert store.migrate() == []
    with connect(url) as connection:
        may = "select has_function_privilege('penstock_producer', 'penstock.send_many(text,jsonb[])', 'execute')"
        assert Sql(connection)(may) == [(True,)]
