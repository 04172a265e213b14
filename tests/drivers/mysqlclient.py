"""The driver mysqlclient, which has no wheels: the one of the environment, else that of the package of Debian, whose
compiled part fits one version of Python."""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module

import pytest

DEBIAN = "/usr/lib/python3/dist-packages"
NAME = "MySQLdb"


def require_mysqlclient() -> None:
    """Make the driver importable for programs of the test, or skip it."""
    reason = _reason_for_its_absence()
    if reason is not None:
        pytest.skip(reason)


@cache
def _reason_for_its_absence() -> str | None:
    try:
        import_module(NAME)
    except ImportError:
        # Only this package: the folder has others that would hide those of the environment.
        sys.path.append(DEBIAN)
        try:
            import_module(NAME)
        except ImportError as error:
            version = f"{sys.version_info.major}.{sys.version_info.minor}"
            return (
                f"mysqlclient is not installed for Python {version} ({error}): `make databases` as root on Debian "
                "installs python3-mysqldb, elsewhere `pip install mysqlclient` builds it"
            )
        finally:
            sys.path.remove(DEBIAN)
    return None
