"""A client's id after the store was replaced by an older copy: it has a time, and what was sent later is read."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from tests.conformance.engines import ENGINES, EngineRow
from tests.servers.resp.client import Client

pytestmark = pytest.mark.anyio


@pytest.fixture(params=[row for row in ENGINES if row.name == "sqlite"], ids=lambda row: row.name)
def engine_row(request: pytest.FixtureRequest) -> EngineRow:
    row: EngineRow = request.param
    return row


def copy(source: Path, target: Path) -> None:
    with closing(apsw.Connection(str(source))) as there, closing(apsw.Connection(str(target))) as here:
        with here.backup("main", there, "main") as backup:
            backup.step()


@pytest.mark.parametrize("count", [10, 40], ids=["shorter than before", "longer than before"])
async def test_law_8_xread_misses_nothing_after_a_restore(client: Client, tmp_path: Path, count: int) -> None:
    [path] = tmp_path.glob("*.db")
    for number in range(5):
        await client("XADD", "s", "*", "old", number)
    copy(path, tmp_path / "copy")
    lost = [await client("XADD", "s", "*", "lost", number) for number in range(20)]
    copy(tmp_path / "copy", path)
    milliseconds = int(lost[-1].partition(b"-")[0])
    while time.time_ns() // 1_000_000 <= milliseconds:
        pass
    sent = [await client("XADD", "s", "*", "new", number) for number in range(count)]
    [[_, entries]] = await client("XREAD", "COUNT", 100, "STREAMS", "s", lost[-1])
    assert [entry[0] for entry in entries] == sent
