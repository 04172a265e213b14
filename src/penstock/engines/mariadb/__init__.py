"""The MariaDB and MySQL engine: the queue in a database on a server."""

from penstock.engines.mariadb.engine import MariadbEngine, open_mariadb
from penstock.engines.mariadb.migration import script as schema_script

__all__ = ["MariadbEngine", "open_mariadb", "schema_script"]
