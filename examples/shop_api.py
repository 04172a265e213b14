"""A web shop: the order and the message about it commit together, or neither does.

pip install fastapi uvicorn
uvicorn examples.shop_api:make_app --factory
penstock worker examples.shop_api:tasks --url sqlite:///shop.db
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing

import apsw
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

import penstock

PATH = "shop.db"
tasks = penstock.App()


class Order(BaseModel):
    customer: str
    item: str
    amount: int


def make_app(path: str = PATH) -> FastAPI:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with penstock.connect(f"sqlite:///{path}") as store, closing(apsw.Connection(path)) as shop:
            shop.set_busy_timeout(10_000)
            shop.execute("create table if not exists purchase (id integer primary key, customer, item, amount)")
            app.state.store, app.state.shop = store, shop
            yield

    app = FastAPI(lifespan=lifespan)

    # Not `async`: FastAPI runs it in a thread, and the transaction belongs to that thread until it ends.
    @app.post("/orders", status_code=201)
    def order(wanted: Order) -> dict[str, str | int]:
        shop: apsw.Connection = app.state.shop
        queue = app.state.store.queue("orders")
        with shop:
            row = shop.execute(
                "insert into purchase (customer, item, amount) values (?, ?, ?) returning id",
                (wanted.customer, wanted.item, wanted.amount),
            ).get
            message = queue.send({"purchase": row, **wanted.model_dump()}, transaction=shop)
            if wanted.amount > 100:
                raise HTTPException(409, "so many are not in stock")  # rolls back the row and the message
        return {"purchase": row, "message": message}

    return app


@tasks.handler("orders", max_retries=5)
def ship(order: dict[str, object], delivery: penstock.Delivery) -> None:
    print(f"shipping {order['amount']} × {order['item']} to {order['customer']} (attempt {delivery.attempt})")
