"""`python -m bench.mariadb.role`: one process of a crew on MariaDB."""

from __future__ import annotations

from bench.mariadb.contenders import CONTENDERS
from bench.role import play

if __name__ == "__main__":
    play(CONTENDERS)
