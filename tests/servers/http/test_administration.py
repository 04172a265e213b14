"""What an operator does: queues, policies, dead letters, batches, schedules, consumers, groups."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from penstock import AsyncStore, Policy
from penstock.servers.http.api.policies import PolicyChanges
from tests.servers.http.api_client import Api, done, problem

pytestmark = pytest.mark.anyio


async def test_policies(api: Api, store: AsyncStore) -> None:
    body = {"lease_seconds": 7, "max_retries": None, "primary_group": "main"}
    made = done(await api.ask("PATCH", "queues", "q", "policy", body=body))
    assert (made["policy"]["lease_seconds"], made["policy"]["max_retries"]) == (7, None)
    assert made == await api.get("queues", "q", "policy")
    assert (await (await store.queue("q")).policy()).primary_group == "main"
    told = problem(await api.ask("PATCH", "queues", "q", "policy", body={"leese_seconds": 7}), 400)
    assert "did you mean 'lease_seconds'?" in told
    assert "lease_seconds" in problem(await api.ask("PATCH", "queues", "q", "policy", body={"lease_seconds": 0}), 400)
    assert await api.get("queues", "q", "policy") == made


def test_every_field_of_a_policy_can_be_set() -> None:
    assert PolicyChanges.__struct_fields__ == Policy.__struct_fields__
    assert set(PolicyChanges.wholes) <= set(Policy.__struct_fields__)


async def test_pause_and_resume(api: Api) -> None:
    await api.send("q", 1)
    assert (await api.post("queues", "q", "pause"))["policy"]["paused"] is True
    assert await api.receive("q") == []
    assert (await api.post("queues", "q", "resume"))["policy"]["paused"] is False
    assert len(await api.receive("q")) == 1


async def test_a_queue_in_one_document(api: Api) -> None:
    await api.send("q", 1)
    await api.send("q", 2, batch="b")
    await api.ask("PUT", "queues", "q", "consumers", "c1", body={})
    shown = await api.get("queues", "q")
    assert shown["groups"]["default"]["available"] == 1
    assert [one["name"] for one in shown["consumers"]] == ["c1"]
    assert [one["name"] for one in shown["batches"]] == ["b"]
    assert shown["groups"].keys() == (await api.get("queues", "q", "stats", group="default"))["groups"].keys()


async def test_dead_letters_are_paged_redriven_and_purged(api: Api) -> None:
    ids = [await api.send("q", number) for number in range(5)]
    for delivery in await api.receive("q", limit=5):
        done(await api.settle(delivery, "reject", reason=f"bad {delivery['payload']}"))
    page: dict[str, Any] = await api.get("queues", "q", "dead_letters", limit=3)
    assert [one["reason"] for one in page["dead_letters"]] == ["bad 4", "bad 3", "bad 2"]
    rest = await api.get("queues", "q", "dead_letters", limit=3, before=page["next"])
    assert [one["payload"] for one in rest["dead_letters"]] == [1, 0]
    assert rest["next"] is None
    assert (await api.post("queues", "q", "redrive", ids=ids[:2]))["count"] == 2
    assert (await api.post("queues", "q", "redrive", outcome="failed"))["count"] == 0
    assert (await api.post("queues", "q", "purge", outcome="rejected", limit=1))["count"] == 1
    assert (await api.post("queues", "q", "purge"))["count"] == 2
    assert [one["payload"] for one in await api.receive("q", limit=9)] == [0, 1]


async def test_a_batch_from_beginning_to_end(api: Api) -> None:
    opened = done(
        await api.ask("PUT", "queues", "q", "batches", "night/1", body={"end": {"payload": "the end", "priority": 1}})
    )
    assert (opened["state"], opened["total"]) == ("open", 0)
    for number in range(2):
        await api.send("q", number, batch="night/1")
    assert await api.receive("q") == []
    assert (await api.post("queues", "q", "batches", "night/1", "start"))["remaining"] == 2
    for delivery in await api.receive("q", limit=5):
        done(await api.settle(delivery, "ack"))
    assert (await api.get("queues", "q", "batches", "night/1"))["state"] == "finished"
    (end,) = await api.receive("q")
    assert (end["payload"], end["priority"]) == ("the end", 1)


async def test_cancelled_batch_reports_its_counts(api: Api) -> None:
    await api.send("q", 1, batch="b")
    await api.post("queues", "q", "batches", "b", "start")
    (delivery,) = await api.receive("q")
    assert (await api.post("queues", "q", "batches", "b", "cancel"))["state"] == "cancelling"
    assert "b" in problem(await api.ask("POST", "queues", "q", "messages", body={"payload": 1, "batch": "b"}), 409)
    done(await api.settle(delivery, "ack"))
    assert [one["state"] for one in (await api.get("queues", "q", "batches"))["batches"]] == ["cancelled"]


async def test_a_message_for_a_batch_that_has_ended_is_refused_until_another_is_open(api: Api) -> None:
    await api.send("q", 1, batch="b")
    await api.post("queues", "q", "batches", "b", "start")
    done(await api.settle((await api.receive("q"))[0], "ack"))
    late = await api.ask("POST", "queues", "q", "messages", body={"payload": 2, "batch": "b"})
    assert "finished" in problem(late, 409)
    assert (await api.post("queues", "q", "batches", "b", "start"))["state"] == "finished"
    assert done(await api.ask("PUT", "queues", "q", "batches", "b", body={}))["state"] == "open"
    await api.send("q", 3, batch="b")
    assert (await api.post("queues", "q", "batches", "b", "start"))["total"] == 1


async def test_schedules(api: Api) -> None:
    rule = {"cron": "*/5 * * * *", "queue": "q", "payload": {"tick": 1}, "timezone": "Europe/Berlin", "priority": 4}
    made = done(await api.ask("PUT", "schedules", "every/5", body=rule))
    assert (made["cron"], made["payload"], made["priority"]) == ("*/5 * * * *", {"tick": 1}, 4)
    assert made["next_at"] is not None
    assert (await api.post("schedules", "every/5", "pause"))["next_at"] is None
    assert (await api.post("schedules", "every/5", "resume"))["paused"] is False
    assert [one["name"] for one in (await api.get("schedules"))["schedules"]] == ["every/5"]
    assert await api.get("schedules", "every/5") == made
    done(await api.ask("DELETE", "schedules", "every/5"))
    problem(await api.ask("DELETE", "schedules", "every/5"), 404)
    for wrong, told in (({"cron": "whenever"}, "does not parse"), ({"timezone": "Mars"}, "unknown")):
        assert told in problem(await api.ask("PUT", "schedules", "s", body={**rule, **wrong}), 400)


async def test_consumers(api: Api) -> None:
    for name in ("c1", "c2"):
        done(await api.ask("PUT", "queues", "q", "consumers", name, body={"heartbeat_seconds": 9}))
    assert [one["index"] for one in (await api.get("queues", "q", "consumers"))["consumers"]] == [0, 1]
    assert (await api.post("queues", "q", "consumers", "c2", "heartbeat"))["heartbeat_seconds"] == 9
    await api.send("q", 1)
    await api.receive("q", consumer="c1")
    assert done(await api.ask("DELETE", "queues", "q", "consumers", "c1"))["count"] == 1
    assert "register" in problem(await api.ask("POST", "queues", "q", "consumers", "c1", "heartbeat", body={}), 409)
    assert [one["name"] for one in (await api.get("consumers"))["consumers"]] == ["c2"]


async def test_seek_and_flush(api: Api) -> None:
    for number in range(3):
        await api.send("q", number)
    for delivery in await api.receive("q", limit=3):
        done(await api.settle(delivery, "ack"))
    seek = ("queues", "q", "groups", "default", "seek")
    assert (await api.post(*seek, position=1))["position"] == 1
    assert [one["payload"] for one in await api.receive("q", limit=9)] == [1, 2]
    assert (await api.post(*seek, edge="end"))["position"] == 3
    assert (await api.post(*seek, time="2020-01-01T00:00:00Z"))["position"] == 0
    for wrong in ({}, {"edge": "middle"}, {"position": 1, "edge": "end"}, {"time": "2020-01-01T00:00:00"}):
        problem(await api.ask("POST", *seek, body=wrong), 400)
    assert (await api.post("queues", "q", "flush"))["count"] == 3
    assert (await api.get("queues", "q", "stats"))["groups"]["default"]["total"] == 0


async def test_sweep_and_me(api: Api) -> None:
    assert "reclaimed" in await api.post("sweep")
    me = await api.get("me")
    assert (me["name"], me["role"]) == ("default", "admin")
    assert "manage" in me["rights"]


async def test_documents_say_what_python_says(api: Api, store: AsyncStore) -> None:
    queue = await store.queue("q")
    sent = await queue.send({"a": 1}, headers={"h": "v"})
    told = await api.get("queues", "q", "messages", sent)
    python = msgspec.to_builtins(await queue.find(sent))
    assert {**told, "payload": None} == {**python, "payload": None}
    assert (await api.get("queues", "q", "stats"))["groups"].keys() == (await queue.stats()).keys()


async def test_a_batch_with_members_in_another_queue(api: Api, store: AsyncStore) -> None:
    batch = (await store.queue("reports")).batch("nightly")
    await batch.set_end("all done")
    await api.send("emails", 1, batch="nightly", batch_queue="reports")
    raw = await api.ask(
        "POST",
        "queues",
        "emails",
        "messages",
        "raw",
        content=b"2",
        params={"batch": "nightly", "batch_queue": "reports"},
    )
    done(raw)
    assert (await api.get("queues", "reports", "batches", "nightly"))["remaining"] == 2
    assert await api.receive("emails") == []
    await api.post("queues", "reports", "batches", "nightly", "start")
    for delivery in await api.receive("emails", limit=9):
        done(await api.settle(delivery, "ack"))
    assert [one["payload"] for one in await api.receive("reports")] == ["all done"]
    alone = await api.ask("POST", "queues", "emails", "messages", body={"payload": 3, "batch_queue": "reports"})
    assert "batch_queue" in problem(alone, 400)


@pytest.mark.parametrize("action", ["nak", "reject"])
async def test_the_code_of_the_error_of_an_address(api: Api, action: str) -> None:
    await api.ask("PATCH", "queues", "q", "policy", body={"max_retries": 0})
    await api.send("q", 1, address="report")
    assert (await api.get("queues", "q", "addresses", "report"))["outcome"] is None
    (delivery,) = await api.receive("q")
    done(await api.settle(delivery, action, reason="no paper", code="E42"))
    state = await api.get("queues", "q", "addresses", "report")
    assert (state["reason"], state["code"]) == ("no paper", "E42")


async def test_how_a_consumer_is_kept_alive(api: Api) -> None:
    body = {"heartbeat_seconds": 3, "max_missed_heartbeats": 4.0, "heartbeats_per_sweep": 2}
    made = done(await api.ask("PUT", "queues", "q", "consumers", "c1", body=body))
    assert (made["max_missed_heartbeats"], made["heartbeats_per_sweep"]) == (4, 2)
    for name, value in (("max_missed_heartbeats", -1), ("heartbeats_per_sweep", 0)):
        assert name in problem(await api.ask("PUT", "queues", "q", "consumers", "c2", body={name: value}), 400)
