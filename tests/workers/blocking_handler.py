"""A handler that blocks the event loop it runs on."""

from __future__ import annotations

import time
from pathlib import Path

import penstock

app = penstock.App()


@app.handler("blocking")
async def block(delivery: penstock.AsyncDelivery) -> None:
    Path(delivery.json()).touch()
    time.sleep(60)  # on purpose
