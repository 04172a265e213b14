"""Small programs that use Penstock. In the invalid one, a comment marks each line that a type checker must refuse."""

RIGHT = """
import asyncio
from dataclasses import dataclass
from typing import Any

import penstock
from penstock import AsyncQueue, Batch, Delivery, Gathered, GroupStats, Outgoing, Policy, PolicyFields, Queue


@dataclass
class Order:
    number: int


store: penstock.Store = penstock.connect("sqlite:///app.db", busy_seconds=2)
orders: Queue = store.queue("orders", lease_seconds=3, max_retries=None, delivery="at_most_once", ordered=True)
shared: PolicyFields = {"lease_seconds": 30, "shards": 4}
returns: Queue = store.queue("returns", **shared)
message_id: str = orders.send(Order(1), priority=1, delay_seconds=0.5, headers={"trace": "a1"}, address=None)
ids: list[str] = orders.send_many([Order(1), Outgoing(payload=b"raw", ttl_seconds=60)])
for delivery in orders.receive(limit=10, wait_seconds=1.5):
    payload: bytes = delivery.payload
    decoded: Any = delivery.json()
    delivery.nak("busy", delay_seconds=5)
stats: GroupStats = orders.stats(group="default")
every: dict[str, GroupStats] = orders.stats()
policy: Policy = orders.policy()
batch: Batch = orders.batch("nightly")
batch.send({"part": 1}, priority=2)
batch.set_end({"all": "done"}, headers={"to": "ada"})
with orders.producer(batch_size=10) as producer:
    gathered: Gathered = producer.send({"n": 1}, key="k")
store.schedule("daily", "0 3 * * *", "orders", {}, timezone="UTC", catch_up="one")

app = penstock.App()


@app.handler("orders", concurrency=4, lease_seconds=60, run="thread")
def handle(order: Order) -> int:
    return order.number


doubled: int = handle(Order(2))


@app.handler("returns", batch_size=10)
async def handle_several(several: list[Delivery]) -> None:
    for one in several:
        one.ack()


app.schedule("nightly", "0 3 * * *", "orders", {"kind": "nightly"}, timezone="Europe/Berlin")
penstock.Worker(store, app, concurrency=8, slots={0: 10, 5: 4}).run(once=True)
penstock.Worker(store, {"orders": handle}).run(once=True)


async def main() -> None:
    async with await penstock.connect_async("sqlite:///app.db") as store:
        queue: AsyncQueue = await store.queue("orders", lease_seconds=5)
        sent: str = await queue.send({"n": 1}, transaction=None)
        print(sent)


asyncio.run(main())
"""

WRONG = """
import penstock

store = penstock.connect("sqlite:///app.db")
orders = store.queue("orders")
penstock.connect("sqlite:///app.db", bussy_seconds=2)  # refused
store.queue("orders", leese_seconds=3)  # refused
store.queue("orders", lease_seconds="three")  # refused
store.queue("orders", max_retries=1.5)  # refused
store.queue("orders", delivery="exactly_once")  # refused
store.queue("orders", ordered="yes")  # refused
orders.send({}, priorty=1)  # refused
orders.send({}, priority="high")  # refused
orders.receive(limit="10")  # refused
batch = orders.batch("nightly")
batch.send({}, prority=2)  # refused
batch.set_end({}, headers=["to"])  # refused
with orders.producer() as producer:
    producer.send({}, kee="k")  # refused
store.schedule("daily", "0 3 * * *", "orders", {}, catch_up="some")  # refused
app = penstock.App()


@app.handler("orders", concurency=4)  # refused
def first(order: dict[str, int]) -> None: ...


@app.handler("orders", concurrency="4")  # refused
def second(order: dict[str, int]) -> None: ...


app.add("orders", second, run="fork")  # refused
app.schedule("nightly", "0 3 * * *", "orders", {}, timezon="UTC")  # refused
penstock.Worker(store, app, concurency=8)  # refused
penstock.Worker(store, app, concurrency="8")  # refused


async def main() -> None:
    store = await penstock.connect_async("sqlite:///app.db")
    queue = await store.queue("orders")
    await penstock.connect_async("sqlite:///app.db", pool_size="10")  # refused
    await store.queue("orders", leese_seconds=3)  # refused
    await queue.send({}, delay_secs=1)  # refused
    queue.send({}).upper()  # refused
"""
