"""Server-sent events: new regions of a page, and new points of a chart, for each new sample.

Regions are rendered once per sample for all viewers, and sent only if they have changed. The stream of a page without
counters only signals changes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import msgspec
from starlette.responses import Response, StreamingResponse

from penstock.servers.http.dashboard.history import History
from penstock.servers.http.problems import Problem
from penstock.servers.http.sampler import Sample

# The HTML of each region by element id, and the data of a chart.
Regions = tuple[dict[str, str], object]
KEEP_ALIVE_SECONDS = 15.0
RETRY_MILLISECONDS = 2000


def events(history: History, user: str, regions: Callable[[Sample], Regions]) -> Response:
    if history.is_full(user):
        raise Problem(503, f"{history.viewers} pages are watching already: reload to see the numbers of now")
    return StreamingResponse(
        _stream(history, user, regions),
        media_type="text/event-stream",
        headers={"cache-control": "no-store", "x-accel-buffering": "no"},
    )


async def _stream(history: History, user: str, regions: Callable[[Sample], Regions]) -> AsyncIterator[bytes]:
    yield f"retry: {RETRY_MILLISECONDS}\n\n".encode()
    shown: dict[str, str] = {}
    changes = history.changes
    async for sample in history.watch(user, KEEP_ALIVE_SECONDS):
        if sample is None:
            yield b": still here\n\n"
            continue
        made, chart = regions(sample)
        fresh = {place: html for place, html in made.items() if shown.get(place) != html}
        shown = made
        changed, changes = history.changes != changes, history.changes
        yield _event(history.number, {"regions": fresh, "chart": chart, "changed": changed})


def _event(number: int, content: object) -> bytes:
    return b"id: %d\nevent: sample\ndata: %s\n\n" % (number, msgspec.json.encode(content))
