"""A store on the server of this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from tests.engines.mariadb.server import fresh_database


@pytest.fixture
def url(tmp_path: Path) -> str:
    return fresh_database(tmp_path)


@pytest.fixture
def store(url: str) -> Iterator[penstock.Store]:
    with penstock.connect(url) as store:
        yield store


@pytest.fixture
def queue(store: penstock.Store) -> penstock.Queue:
    return store.queue("orders")
