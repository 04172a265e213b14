"""An empty store to copy: making its schema takes longer than most tests."""

from __future__ import annotations

import secrets
import tempfile
from functools import cache
from pathlib import Path

import apsw

import penstock
from penstock.domain.identity import SALT_BITS


def fresh_store(folder: Path) -> str:
    """The URL of a new store in a folder. Its rights, salt and epoch are those of a store that was made there."""
    path = folder / "store.db"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_bytes(_template())
        with apsw.Connection(str(path)) as connection:
            for name, bits in (("salt", SALT_BITS), ("epoch", 62)):
                fact = (secrets.randbits(bits), name)
                connection.execute("update penstock_store set value = ? where name = ?", fact)
        connection.close()
    return f"sqlite:///{path}"


@cache
def _template() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        penstock.connect(f"sqlite:///{path}").close()
        return path.read_bytes()
