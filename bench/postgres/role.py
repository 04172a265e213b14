"""`python -m bench.postgres.role`: one process of a crew on PostgreSQL."""

from __future__ import annotations

from bench.postgres.contenders import CONTENDERS
from bench.role import play

if __name__ == "__main__":
    play({name: contender.open for name, contender in CONTENDERS.items()})
