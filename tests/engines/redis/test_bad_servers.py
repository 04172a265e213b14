"""Servers that cannot hold a store get an error that says why, and nothing is changed."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

import penstock
from penstock.engines.redis import library
from tests.engines.redis.server import RedisServer, fresh_store


def test_a_server_without_the_functions_has_no_schema() -> None:
    with RedisServer("--save", "") as server, penstock.connect(server.url) as store:
        with pytest.raises(penstock.SchemaMissing, match="penstock migrate"):
            store.queue("orders").send(1)
        assert store.migrate() == [f"functions of version {library.VERSION}"]
        assert store.migrate() == []
        assert store.queue("orders").send(1)


def test_functions_of_a_newer_version_are_not_replaced() -> None:
    newer = f"#!lua name={library.NAME}\nlocal VERSION = 99\n" + (
        "redis.register_function('penstock_send', function() return 1 end)"
    )
    with RedisServer("--save", "") as server, penstock.connect(server.url) as store:
        client = redis.Redis(unix_socket_path=str(server.socket))
        client.function_load(newer)
        with pytest.raises(penstock.SchemaTooNew, match="version 99"):
            store.migrate()
        assert client.fcall("penstock_send", 0) == 1
        client.close()


def test_a_wrong_password_is_told() -> None:
    with RedisServer("--save", "", "--requirepass", "right") as server:
        with (
            penstock.connect(f"{server.url}?password=wrong") as store,
            pytest.raises(penstock.StoreUnavailable, match="login"),
        ):
            store.migrate()
        with penstock.connect(f"{server.url}?password=right") as store:
            assert store.migrate()


def test_a_server_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    with penstock.connect(f"redis+unix://{tmp_path}/none.sock") as store:
        with pytest.raises(penstock.StoreUnavailable, match="cannot be reached"):
            store.queue("orders").send(1)


def test_a_foreign_key_in_the_way_is_told_and_kept() -> None:
    url = fresh_store()
    path, _, prefix = url.removeprefix("redis+unix://").partition("?prefix=")
    client = redis.Redis(unix_socket_path=path)
    client.set(f"{prefix}{{q:orders}}", "mine")
    with penstock.connect(url) as store, pytest.raises(penstock.NotAStore, match=prefix):
        store.queue("orders").send(1)
    assert client.get(f"{prefix}{{q:orders}}") == b"mine"
    client.close()


def test_a_full_server_refuses_sends_and_keeps_what_it_has() -> None:
    with RedisServer("--save", "") as server, penstock.connect(server.url) as store:
        store.migrate()
        queue = store.queue("orders")
        queue.send("kept")
        client = redis.Redis(unix_socket_path=str(server.socket))
        client.config_set("maxmemory", "1kb")
        with pytest.raises(penstock.StoreFull, match="maxmemory"):
            queue.send("refused")
        client.config_set("maxmemory", "0")
        assert [one.json() for one in queue.receive(limit=5)] == ["kept"]
        client.close()


def test_a_server_that_evicts_keys_is_reported() -> None:
    options = ("--save", "", "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
    with RedisServer(*options) as server, penstock.connect(server.url) as store:
        store.migrate()
        [memory] = [check for check in store.doctor() if check.name == "memory"]
        assert memory.level == "error"
        assert "allkeys-lru" in memory.finding


@pytest.mark.parametrize("prefix", ["", "a{b", "a}b"])
def test_a_prefix_that_would_move_keys_to_other_slots_is_refused(prefix: str) -> None:
    with pytest.raises(penstock.InvalidUrl, match="prefix"):
        penstock.connect(f"redis://localhost/0?prefix={prefix}")


@pytest.mark.parametrize("durability", ["disk", "replicas", "replicas=0", "replicas=-1", ""])
def test_an_unknown_durability_is_refused(durability: str) -> None:
    with pytest.raises(penstock.InvalidUrl, match="durability"):
        penstock.connect(f"redis://localhost/0?durability={durability}")
