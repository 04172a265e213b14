"""Servers that cannot hold a store get an error that says why, and nothing is changed."""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

import penstock
from penstock.client.connection import redacted
from penstock.engines.redis import library
from tests.engines.redis.server import RedisServer, fresh_store
from tests.faults.processes import await_until
from tests.ports import free_port


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


@pytest.mark.parametrize("suffix", ["", ":log", ":a", ":gs", ":r0:0", ":g1", ":t1", ":b"])
def test_a_foreign_key_in_the_way_is_told_and_kept(suffix: str) -> None:
    with client_of(fresh_store()) as (client, url, prefix):
        key = f"{prefix}{{q:orders}}{suffix}"
        client.set(key, "mine")
        with penstock.connect(url) as store, pytest.raises(penstock.NotAStore, match=prefix):
            store.queue("orders").send(1)
        assert client.get(key) == b"mine"
        assert set(client.keys(f"{prefix}*")) - {f"{prefix}{{store}}:queues".encode()} == {key.encode()}


def test_a_foreign_key_in_the_way_of_a_group_is_told() -> None:
    with client_of(fresh_store()) as (client, url, prefix), penstock.connect(url) as store:
        queue = store.queue("orders")
        queue.send(1)
        client.set(f"{prefix}{{q:orders}}:c2", "mine")
        with pytest.raises(penstock.NotAStore, match="c2"):
            queue.receive(group="billing")
        assert queue.groups() == ["default"]


def test_functions_of_a_newer_version_are_told_by_every_call() -> None:
    newer = library.source().replace(f"local VERSION = {library.VERSION}\n", "local VERSION = 99\n")
    older = library.source().replace(f"local VERSION = {library.VERSION}\n", "local VERSION = 0\n")
    with RedisServer("--save", "") as server, penstock.connect(server.url) as store:
        with redis.Redis(unix_socket_path=str(server.socket)) as client:
            client.function_load(newer)
            with pytest.raises(penstock.SchemaTooNew, match="version 99"):
                store.queue("orders").send(1)
            client.function_load(older, replace=True)
            with pytest.raises(penstock.SchemaMissing, match="version 0: run penstock migrate"):
                store.queue("orders").send(1)
            assert client.keys() == []
            assert store.migrate()
            assert store.queue("orders").send(1)


def test_a_server_without_functions_is_too_old() -> None:
    with (
        RedisServer("--save", "", "--rename-command", "FCALL", "nothing") as server,
        penstock.connect(server.url) as store,
        pytest.raises(penstock.EngineTooOld, match=r"needs Redis 7\.0"),
    ):
        store.queue("orders").send(1)


RIGHTS = "~penstock* &penstock:* +@read +@write +fcall +time +publish +subscribe +ping"


@pytest.mark.parametrize("missing", ["-fcall", "-xadd", "-unlink", "resetkeys", "resetchannels"])
def test_a_missing_right_is_told_and_nothing_is_written(missing: str) -> None:
    with RedisServer("--save", "") as server:
        with penstock.connect(server.url) as store:
            store.migrate()
        with redis.Redis(unix_socket_path=str(server.socket)) as client:
            client.execute_command("ACL", "SETUSER", "worker", "on", ">secret", *RIGHTS.split(), missing)
            with (
                penstock.connect(f"{server.url}?username=worker&password=secret") as store,
                pytest.raises(penstock.StoreReadOnly, match="right"),
            ):
                store.queue("orders").send(1)
            assert client.keys("*{q:*") == []
            client.execute_command("ACL", "SETUSER", "worker", "reset", "on", ">secret", *RIGHTS.split())
            with penstock.connect(f"{server.url}?username=worker&password=secret") as store:
                queue = store.queue("orders")
                queue.send(1)
                queue.receive()[0].ack()
                store.sweep()


def test_a_replica_is_told() -> None:
    with RedisServer("--save", "") as server, penstock.connect(server.url) as store:
        store.migrate()
        with redis.Redis(unix_socket_path=str(server.socket)) as client:
            client.replicaof("127.0.0.1", "1")
            with pytest.raises(penstock.StoreReadOnly, match="connect to the primary"):
                store.queue("orders").send(1)
            client.replicaof("NO", "ONE")
            assert store.queue("orders").send(1)


def test_a_server_that_cannot_save_is_told() -> None:
    with RedisServer("--save", "3600 100000") as server, penstock.connect(server.url) as store:
        store.migrate()
        with redis.Redis(unix_socket_path=str(server.socket)) as client:
            client.ping()
            shutil.rmtree(server.folder)
            client.bgsave()
            await_until(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err")
            with pytest.raises(penstock.DiskError, match="disk"):
                store.queue("orders").send(1)
        server.kill()


def test_a_busy_server_is_waited_for() -> None:
    with RedisServer("--save", "", "--busy-reply-threshold", "10") as server:
        with penstock.connect(server.url) as store:
            store.migrate()
        running = threading.Thread(target=_run_forever, args=(server,))
        running.start()
        with redis.Redis(unix_socket_path=str(server.socket)) as client:
            await_until(lambda: _is_busy(client))
            with (
                penstock.connect(server.url, busy_seconds=0.05) as store,
                pytest.raises(penstock.StoreUnavailable, match=r"does not run calls now: BUSY"),
            ):
                store.queue("orders").send(1)
            threading.Timer(0.2, client.script_kill).start()
            with penstock.connect(server.url, busy_seconds=60) as store:
                assert store.queue("orders").send(1)
        running.join(60)


def _run_forever(server: RedisServer) -> None:
    with redis.Redis(unix_socket_path=str(server.socket)) as client, contextlib.suppress(redis.exceptions.RedisError):
        client.eval("while true do end", 0)


def _is_busy(client: redis.Redis) -> bool:
    try:
        client.ping()
    except redis.exceptions.ResponseError:
        return True
    return False


def test_a_server_that_loads_its_data_is_waited_for() -> None:
    with RedisServer(
        "--save", "", "--key-load-delay", "2000", "--loading-process-events-interval-bytes", "1024"
    ) as server:
        with penstock.connect(server.url, busy_seconds=60) as store:
            store.migrate()
            queue = store.queue("orders")
            queue.send_many(range(100))
            with redis.Redis(unix_socket_path=str(server.socket)) as client:
                client.mset({f"other:{number}": "x" * 100 for number in range(300)})
                client.save()
            server.kill()
            server.start(until_loaded=False)
            assert len(queue.receive(limit=100)) == 100


@contextlib.contextmanager
def client_of(url: str) -> Iterator[tuple[redis.Redis, str, str]]:
    path, _, prefix = url.removeprefix("redis+unix://").partition("?prefix=")
    with redis.Redis(unix_socket_path=path) as client:
        yield client, url, prefix


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


@pytest.mark.parametrize(
    "url",
    [
        "redis+sentinel://localhost",
        "redis+sentinel:///name",
        "redis+sentinel://localhost/name/zero",
        "redis+sentinel://localhost:port/name",
        "redis+sentinel://localhost/name?timeout=3",
    ],
)
def test_a_malformed_sentinel_url_is_refused(url: str) -> None:
    with pytest.raises(penstock.InvalidUrl, match=r"Sentinel|not a URL"):
        penstock.connect(url)


def test_sentinels_that_are_not_there_are_told_without_a_password() -> None:
    port = free_port()
    url = f"redis+sentinel://user:geheim@127.0.0.1:{port},127.0.0.1:{port}/shop/0?sentinel_password=geheim"
    assert "geheim" not in redacted(url)
    with penstock.connect(url) as store, pytest.raises(penstock.StoreUnavailable, match="shop") as raised:
        store.queue("orders").send(1)
    assert "geheim" not in str(raised.value)
