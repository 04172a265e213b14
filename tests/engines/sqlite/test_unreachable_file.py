"""Waits while the file cannot be opened: new connections fail, open ones work."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import penstock


def test_a_waiting_receive_notices_commits_once_the_file_can_be_opened_again(tmp_path: Path) -> None:
    home, away = tmp_path / "home", tmp_path / "away"
    home.mkdir()
    url = f"sqlite:///{home}/app.db"
    with penstock.connect(url) as store, ThreadPoolExecutor(1) as threads:
        orders = store.queue("orders")
        home.rename(away)
        waiting = threads.submit(orders.receive, wait_seconds=100)
        # By the end of this call the thread that watches the file has tried to open it.
        assert store.queue("other").receive(wait_seconds=1) == []
        away.rename(home)
        with penstock.connect(url) as elsewhere:
            elsewhere.queue("orders").send("late")
            assert [delivery.json() for delivery in waiting.result(60)] == ["late"]
