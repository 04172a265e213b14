"""A report every Monday morning, in Berlin's time, sent once however many workers run.

The schedule belongs to the app: every worker declares it when it starts, and the store keeps one of it. A report that
takes long is written by an `async def` handler, in a queue of its own.

    penstock worker examples.scheduled_report:app
"""

from __future__ import annotations

import asyncio
from datetime import datetime

import penstock

app = penstock.App()
app.schedule("weekly report", "0 8 * * MON", "reports", {"kind": "weekly"}, timezone="Europe/Berlin", catch_up="one")
written: list[str] = []


@app.handler("reports", max_retries=2, max_seconds=600)
async def write_report(delivery: penstock.AsyncDelivery) -> None:
    tick = datetime.fromisoformat(delivery.headers["penstock-tick"])
    figures = await asyncio.gather(*(gather(kind) for kind in ("sales", "returns")))
    written.append(f"{delivery.json()['kind']} report of {tick:%Y-%m-%d}: {', '.join(figures)}")


async def gather(kind: str) -> str:
    """Stands for a query that takes its time."""
    await asyncio.sleep(0)
    return f"{kind} counted"
