"""redis-py as people use it: pipelines, pools, asyncio, and its habit of giving up a wait after five seconds."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
import redis
import redis.asyncio

from tests.ports import LOOPBACK
from tests.servers.clients.processes import PenstockServer
from tests.servers.clients.queue_status import counts
from tests.servers.clients.wire import Wire


@pytest.fixture(params=[2, 3], ids=["RESP2", "RESP3"])
def client(request: pytest.FixtureRequest, server: PenstockServer) -> Any:
    with redis.Redis(host=LOOPBACK, port=server.port, protocol=request.param) as made:
        yield made


def test_a_pipeline_is_one_transaction(client: Any) -> None:
    """redis-py wraps it in MULTI and EXEC by itself."""
    with client.pipeline() as pipeline:
        for number in range(10):
            pipeline.execute_command("QADD", "q", 60, f"event {number}")
        pipeline.execute_command("QGET", "q", "g", "EX", 0)
        *ids, got = pipeline.execute()
    assert len(set(ids)) == 10
    assert got == [ids[0], b"event 0"]


def test_a_command_that_fails_while_it_runs_fails_alone(client: Any, wire: Wire) -> None:
    with client.pipeline() as pipeline:
        pipeline.execute_command("QADD", "q", 60, "one")
        pipeline.execute_command("XRANGE", "q", "nonsense", "+")
        pipeline.execute_command("QADD", "q", 60, "three")
        one, two, three = pipeline.execute(raise_on_error=False)
    assert isinstance(two, redis.ResponseError)
    assert isinstance(one, bytes)
    assert isinstance(three, bytes)
    assert counts(wire.call, "q", "g")["available"] == 2


def test_a_command_that_cannot_run_discards_the_whole_pipeline(client: Any, wire: Wire) -> None:
    with client.pipeline() as pipeline:
        pipeline.execute_command("QADD", "q", 60, "one")
        pipeline.execute_command("QADD", "q")
        with pytest.raises(redis.ResponseError, match="wrong number of arguments"):
            pipeline.execute()
    assert counts(wire.call, "q", "g")["total"] == 0


def test_a_pipeline_without_transaction_keeps_its_order(client: Any) -> None:
    with client.pipeline(transaction=False) as pipeline:
        for number in range(50):
            pipeline.execute_command("QADD", "q", 60, number)
            pipeline.execute_command("QGET", "q", "g", "EX", 0)
        replies = pipeline.execute()
    assert [got[1] for got in replies[1::2]] == [b"%d" % number for number in range(50)]
    assert [got[0] for got in replies[1::2]] == replies[0::2]


def test_information_that_clients_read(client: Any) -> None:
    about = client.info()
    assert about["redis_mode"] == "standalone"
    assert about["loading"] == 0
    assert client.client_setname("me")
    assert client.client_getname() in ("me", b"me")
    assert client.client_id() > 0
    assert client.echo("x") == b"x"
    assert client.time()[0] > 1_700_000_000
    assert client.config_get("save") == {}
    assert client.command_count() > 20
    assert "qadd" in {name.lower() for name in client.command()}


def test_a_wait_longer_than_the_clients_patience_loses_nothing(server: PenstockServer) -> None:
    """By default redis-py 8 drops a connection that is silent for five seconds and asks again on a new one."""
    client: Any = redis.Redis(host=LOOPBACK, port=server.port)
    client.xgroup_create("s", "g", id="0", mkstream=True)
    got: list[Any] = []
    reader = threading.Thread(target=lambda: got.append(client.xreadgroup("g", "c", {"s": ">"}, block=30_000)))
    reader.start()
    with Wire(server.port) as wire:
        reader.join(6.5)  # long enough for it to have given up once
        assert not got
        added = wire.call("XADD", "s", "*", "a", "1")
        reader.join(60)
        assert not reader.is_alive()
        ((_, consumer, _, deliveries),) = wire.call("XPENDING", "s", "g", "-", "+", 10)
        assert (consumer, deliveries) == (b"c", 1)
    assert added in str(got).encode()
    client.close()


def test_many_asyncio_consumers_share_a_queue(server: PenstockServer) -> None:
    async def run() -> None:
        pool: Any = redis.asyncio.Redis(host=LOOPBACK, port=server.port, socket_timeout=None)
        await pool.xgroup_create("s", "g", id="0", mkstream=True)
        done: list[bytes] = []

        async def consume(name: str) -> None:
            while len(done) < 100:
                entries = await pool.xreadgroup("g", name, {"s": ">"}, count=1, block=100)
                if entries:
                    items = entries.values() if isinstance(entries, dict) else [entries[0][1]]
                    ((id, _),) = next(iter(items))[0] if isinstance(entries, dict) else entries[0][1]
                    assert await pool.xack("s", "g", id) == 1
                    done.append(id)

        consumers = [asyncio.create_task(consume(f"c{number}")) for number in range(10)]
        added = [await pool.xadd("s", {"n": number}) for number in range(100)]
        await asyncio.gather(*consumers)
        await pool.aclose()
        assert sorted(done) == sorted(added)

    asyncio.run(run())


def test_a_cancelled_wait_does_not_mix_up_answers(server: PenstockServer) -> None:
    """The next caller of the pool gets its own answer."""

    async def run() -> None:
        client: Any = redis.asyncio.Redis(host=LOOPBACK, port=server.port, socket_timeout=None, max_connections=1)
        await client.xgroup_create("s", "g", id="0", mkstream=True)
        for number in range(20):
            waiting = asyncio.create_task(client.xreadgroup("g", "c", {"s": ">"}, block=0))
            await asyncio.sleep(0.01)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert await client.echo(f"mine {number}") == f"mine {number}".encode()
        await client.aclose()

    asyncio.run(run())


def test_the_newer_stream_commands_have_their_methods(client: Any) -> None:
    client.xgroup_create("s", "g", id="0", mkstream=True)
    first = client.xadd("s", {"n": 1}, idmp=("producer", b"1"))
    assert client.xadd("s", {"n": 1}, idmp=("producer", b"1")) == first
    second = client.xadd("s", {"n": 2}, idmpauto="producer")
    assert client.xadd("s", {"n": 2}, idmpauto="producer", maxlen=100, ref_policy="DELREF") == second
    client.xreadgroup("g", "c", {"s": ">"})
    assert client.xnack("s", "g", "SILENT", second) == 1
    assert client.xackdel("s", "g", first, second) == [1, -1]
    assert client.xdelex("s", second, b"1-1", ref_policy="ACKED") == [2, -1]
    assert client.xdelex("s", second) == [1]
    assert client.xlen("s") == 0


def test_connections_are_listed_and_ended(client: Any, server: PenstockServer) -> None:
    with redis.Redis(host=LOOPBACK, port=server.port, client_name="other") as other:
        number = other.client_id()
        [seen] = [one for one in client.client_list() if one["name"] == "other"]
        assert (int(seen["id"]), seen["lib-name"]) == (number, "redis-py")
        assert client.client_unblock(number) in (0, False)
        assert client.client_kill_filter(_id=str(number)) == 1
        assert number not in {int(one["id"]) for one in client.client_list()}
