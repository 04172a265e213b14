"""What operators need over HTTP: messages by state, members of batches, deleting queues, running schedules."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import AsyncStore
from penstock.servers.access import Users, make_user
from tests.servers.http.api_client import Api, done, problem

pytestmark = pytest.mark.anyio


async def test_messages_by_state_page_by_page(api: Api) -> None:
    later = await api.send("q", 1, delay_seconds=7200)
    sent = [await api.send("q", number) for number in range(3)]
    (delivery,) = await api.receive("q", consumer="ann")
    held = await api.get("queues", "q", "messages", state="held")
    assert [one["id"] for one in held["messages"]] == [later]
    assert held["next"] is None
    (running,) = (await api.get("queues", "q", "messages", state="leased"))["messages"]
    assert (running["id"], running["consumer"], running["state"]) == (delivery["id"], "ann", "leased")
    assert "token" not in running, "it is for those who may receive"
    page = await api.get("queues", "q", "messages", state="ready", limit=1)
    rest = await api.get("queues", "q", "messages", state="ready", after=page["next"])
    assert [one["id"] for one in page["messages"] + rest["messages"]] == sent[1:]


async def test_wrong_states_marks_and_names(api: Api) -> None:
    await api.send("orders", 1)

    async def asked(queue: str, **query: Any) -> Any:
        return await api.ask("GET", "queues", queue, "messages", params=query)

    assert "'redy' is not a state" in problem(await asked("orders", state="redy"), 400)
    assert "after must be `next`" in problem(await asked("orders", state="held", after="x"), 400)
    assert "did you mean 'orders'" in problem(await asked("ordres", state="held"), 404)
    assert "has no group 'othre'" in problem(await asked("orders", state="held", group="othre"), 404)
    assert (await asked("orders")).status_code == 400


async def test_members_of_a_batch(api: Api) -> None:
    sent = [await api.send("q", number, batch="nightly") for number in range(3)]
    first = await api.get("queues", "q", "batches", "nightly", "members", limit=2)
    rest = await api.get("queues", "q", "batches", "nightly", "members", after=first["next"])
    assert [(one["id"], one["state"]) for one in first["messages"] + rest["messages"]] == [
        (one, "held") for one in sent
    ]


async def test_a_queue_is_deleted_and_unknown_from_then_on(api: Api, store: AsyncStore) -> None:
    await api.send("q", 1)
    assert done(await api.ask("DELETE", "queues", "q")) == {"count": 1}
    assert await store.queues() == []
    assert "there is no queue" in problem(await api.ask("POST", "queues", "q", "receive", body={}), 404)
    assert "there is no queue" in problem(await api.ask("GET", "queues", "q", "stats"), 404)
    problem(await api.ask("DELETE", "queues", "q"), 404)


async def test_a_queue_that_somebody_would_make_anew_is_not_deleted(api: Api) -> None:
    await api.send("q", 1)
    schedule = {"cron": "0 3 * * *", "queue": "q", "payload": {}}
    done(await api.ask("PUT", "schedules", "nightly", body=schedule))
    assert "schedule 'nightly' would make it anew" in problem(await api.ask("DELETE", "queues", "q"), 409)


async def test_a_schedule_is_run_now(api: Api) -> None:
    schedule = {"cron": "0 3 * * *", "queue": "q", "payload": {"a": 1}, "key": "k", "ttl_seconds": 90}
    made = done(await api.ask("PUT", "schedules", "nightly", body=schedule))
    assert (made["key"], made["ttl_seconds"]) == ("k", 90)
    answer = await api.ask("POST", "schedules", "nightly", "run")
    assert answer.status_code == 201
    (delivery,) = await api.receive("q")
    assert (delivery["id"], delivery["payload"]) == (answer.json()["id"], {"a": 1})
    assert "there is no schedule 'nigthly'" in problem(await api.ask("POST", "schedules", "nigthly", "run"), 404)


async def test_processes_have_all_their_queues(api: Api, store: AsyncStore) -> None:
    for name in ("orders", "mail"):
        await (await store.queue(name)).register("host-1")
    (process,) = (await api.get("processes"))["processes"]
    assert process["name"] == "host-1"
    assert [one["queue"] for one in process["consumers"]] == ["orders", "mail"]


async def test_members_in_queues_of_others_are_not_shown(api: Api, store: AsyncStore, users: Users) -> None:
    batch = (await store.queue("mine")).batch("nightly")
    own, other = await batch.send(1), await batch.send(2, queue="theirs")
    shown = (await api.get("queues", "mine", "batches", "nightly", "members"))["messages"]
    assert [one["id"] for one in shown] == [own, other]
    users.replace([make_user("default", None, ["mine"], role="observer")])
    shown = (await api.get("queues", "mine", "batches", "nightly", "members"))["messages"]
    assert [one["id"] for one in shown] == [own]
