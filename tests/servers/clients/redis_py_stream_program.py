"""A Streams round trip as a user of redis-py writes it: `redis_py_stream_program.py PORT PROTOCOL STREAM`.

It prints what it saw as JSON. It knows nothing of Penstock: the same program runs against Redis, to compare.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

import redis


def main() -> None:
    port, protocol, stream = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    client: Any = redis.Redis(host="127.0.0.1", port=port, protocol=protocol, decode_responses=True)
    seen: dict[str, Any] = {}
    write_and_read(client, stream, seen)
    hand_over(client, stream, seen)
    look(client, stream, seen)
    use_pipelines(client, stream, seen)
    wait(client, stream, seen)
    fail(client, stream, seen)
    remove(client, stream, seen)
    use_keys(client, stream, seen)
    print(json.dumps(seen))


def write_and_read(client: Any, stream: str, seen: dict[str, Any]) -> None:
    seen["create"] = client.xgroup_create(stream, "workers", id="0", mkstream=True)
    seen["add"] = [client.xadd(stream, {"task": f"t{number}", "of": "day"}) for number in range(4)]
    seen["len"] = client.xlen(stream)
    seen["range"] = client.xrange(stream)
    seen["range from"] = client.xrange(stream, min=seen["add"][1], max="+", count=2)
    seen["read"] = client.xreadgroup("workers", "alice", {stream: ">"}, count=3)
    seen["pending"] = client.xpending(stream, "workers")
    seen["ack"] = client.xack(stream, "workers", seen["add"][0])
    seen["ack again"] = client.xack(stream, "workers", seen["add"][0])


def hand_over(client: Any, stream: str, seen: dict[str, Any]) -> None:
    second, third = seen["add"][1:3]
    seen["claim"] = client.xclaim(stream, "workers", "bob", 0, [second])
    seen["claim ids"] = client.xclaim(stream, "workers", "bob", 0, [third], justid=True)
    seen["claim too young"] = client.xclaim(stream, "workers", "carol", 60_000, [second])
    seen["autoclaim"] = client.xautoclaim(stream, "workers", "carol", 0, start_id="0-0", count=10)
    seen["history"] = client.xreadgroup("workers", "carol", {stream: "0"})
    seen["history of others"] = client.xreadgroup("workers", "bob", {stream: "0"})
    listed = client.xpending_range(stream, "workers", "-", "+", 10)
    seen["pending list"] = [[row["message_id"], row["consumer"], row["times_delivered"]] for row in listed]
    seen["ack rest"] = client.xack(stream, "workers", second, third)


def look(client: Any, stream: str, seen: dict[str, Any]) -> None:
    about = client.xinfo_stream(stream)
    seen["info stream"] = {key: about[key] for key in ("length", "groups", "last-generated-id", "first-entry")}
    (group,) = client.xinfo_groups(stream)
    seen["info groups"] = {key: group[key] for key in ("name", "consumers", "pending", "last-delivered-id")}
    consumers = client.xinfo_consumers(stream, "workers")
    seen["info consumers"] = sorted([one["name"], one["pending"]] for one in consumers)


def use_pipelines(client: Any, stream: str, seen: dict[str, Any]) -> None:
    with client.pipeline() as together:  # MULTI and EXEC around it
        together.xadd(stream, {"n": "1"}).xadd(stream, {"n": "2"}).xlen(stream)
        seen["transaction"] = together.execute()
    with client.pipeline(transaction=False) as batched:
        batched.xadd(stream, {"n": "3"}).xlen(stream).ping()
        seen["pipeline"] = batched.execute()
    seen["noack"] = client.xreadgroup("workers", "alice", {stream: ">"}, count=10, noack=True)
    seen["pending after noack"] = client.xpending(stream, "workers")


def wait(client: Any, stream: str, seen: dict[str, Any]) -> None:
    seen["nothing"] = client.xreadgroup("workers", "alice", {stream: ">"}, block=20)
    got: list[Any] = []
    reader = threading.Thread(
        target=lambda: got.append(client.xreadgroup("workers", "alice", {stream: ">"}, block=4000))
    )
    reader.start()
    seen["woken by"] = client.xadd(stream, {"wake": "up"})
    reader.join()
    seen["woken"] = got


def fail(client: Any, stream: str, seen: dict[str, Any]) -> None:
    attempts: dict[str, Any] = {
        "no group": lambda: client.xreadgroup("nobody", "x", {stream: ">"}),
        "group exists": lambda: client.xgroup_create(stream, "workers", id="0"),
        "no stream": lambda: client.xgroup_create(stream + "-none", "workers", id="0"),
        "unknown": lambda: client.execute_command("NOSUCH", "thing"),
        "arity": lambda: client.execute_command("XLEN"),
    }
    for name, attempt in attempts.items():
        try:
            attempt()
            seen[name] = "no error"
        except redis.ResponseError as error:
            seen[name] = str(error)
    seen["still here"] = client.ping()


def remove(client: Any, stream: str, seen: dict[str, Any]) -> None:
    last = seen["woken by"]
    seen["ack last"] = client.xack(stream, "workers", last)
    seen["del"] = client.xdel(stream, seen["add"][3])
    seen["len after del"] = client.xlen(stream)
    seen["trim"] = client.xtrim(stream, maxlen=2, approximate=False)
    seen["range after trim"] = client.xrange(stream)
    seen["delconsumer"] = client.xgroup_delconsumer(stream, "workers", "alice")
    seen["destroy"] = client.xgroup_destroy(stream, "workers")
    seen["destroy again"] = client.xgroup_destroy(stream, "workers")


def use_keys(client: Any, stream: str, seen: dict[str, Any]) -> None:
    missing = stream + "-none"
    seen["exists"] = client.exists(stream, missing, stream)
    seen["types"] = [client.type(stream), client.type(missing)]
    seen["times"] = [client.ttl(stream), client.pttl(stream), client.ttl(missing), client.persist(stream)]
    seen["encoding"] = client.object("encoding", stream)
    seen["keys"] = [client.keys(stream), list(client.scan_iter(match=stream, _type="stream"))]
    with client.lock(missing, timeout=60):
        seen["locked"] = [client.type(missing), client.set(missing, "other", nx=True), client.ttl(missing)]
    seen["unlocked"] = client.exists(missing)
    seen["scripts"] = client.script_exists("0" * 40)
    ours = client.client_info()
    seen["client"] = [ours["flags"], ours["db"], ours.get("lib-name", "redis-py")]
    seen["delete"] = [client.delete(stream, missing), client.unlink(stream), client.exists(stream)]


if __name__ == "__main__":
    main()
