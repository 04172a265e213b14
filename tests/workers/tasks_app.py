"""An App object for the command line."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

import penstock

app = penstock.App()
empty = penstock.App()
number = 7


@app.handler("orders", max_retries=3, lease_seconds=17)
def take_order(delivery: penstock.Delivery) -> None:
    logging.getLogger("shop").info("packing")
    work = delivery.json()
    if work.get("fail"):
        raise ValueError("no such customer")
    if work.get("touch"):
        Path(work["touch"]).write_text(str(os.getpid()))
        time.sleep(work.get("seconds", 0))


app.schedule("nightly", "0 3 * * *", "orders", {"order": "nightly"})
