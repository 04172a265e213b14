"""Trusted certificates of the tests: one that nobody uses.

Every HTTP client and every connection to MariaDB reads the trusted certificates of the system, 140 of them, which takes
longer than most tests. Tests talk to servers of their own, and those of TLS name their own authority.
"""

from __future__ import annotations

import os
from pathlib import Path

FILE = Path(__file__).parent / "trusted.pem"


def set_up() -> None:
    """Also for the processes that tests start."""
    os.environ["SSL_CERT_FILE"] = str(FILE)
