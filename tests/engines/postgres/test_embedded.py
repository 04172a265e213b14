"""A server of one's own in a folder: it starts with the first store and comes back with all that was sent."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock import NotAStore


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where another user may go: PostgreSQL does not run as root."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_a_store_in_a_folder_is_opened_closed_and_opened_again(folder: Path) -> None:
    url = f"postgresql+embedded:///{folder}/pg"
    with penstock.connect(url) as store:
        assert store.engine.name == "postgres"
        message_id = store.queue("orders").send({"order": 1})
    with penstock.connect(url) as store:
        [delivery] = store.queue("orders").receive()
        assert (delivery.id, delivery.json()) == (message_id, {"order": 1})
        delivery.ack()


def test_a_folder_that_cannot_be_is_named(folder: Path) -> None:
    with pytest.raises(NotAStore, match="nowhere"):
        penstock.connect(f"postgresql+embedded:///{folder}/nowhere/pg")
