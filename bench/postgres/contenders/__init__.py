"""Who is measured. One file per contender, each used the fastest way that its own documentation shows; nobody's commit
returns before it is on the disk, but for Penstock's receive, whose loss only means a redelivery."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench import penstock_session
from bench.postgres.contenders import node, pgmq_queue, pgqueuer_queue, procrastinate_queue
from bench.role import Session


@dataclass(frozen=True)
class Contender:
    name: str
    package: str
    prepare: Callable[[str], None]
    open: Callable[[str], Session]
    batches: Sequence[int] = (1, 10, 100, 1000)
    """The sizes in which it can receive; beyond them it would only repeat itself."""
    program: Sequence[str] = (sys.executable, "-m", "bench.postgres.role")

    def command(self) -> Sequence[str]:
        return self.program


PENSTOCK, PGMQ = "penstock", "pgmq"
CONTENDERS: dict[str, Contender] = {
    contender.name: contender
    for contender in (
        Contender(PENSTOCK, "penstock-queue", penstock_session.prepare, penstock_session.PenstockSession),
        Contender(PGMQ, "pgmq", pgmq_queue.prepare, pgmq_queue.PgmqSession),
        Contender("pgqueuer", "pgqueuer", pgqueuer_queue.prepare, pgqueuer_queue.PgqueuerSession),
        Contender(
            "procrastinate",
            "procrastinate",
            procrastinate_queue.prepare,
            procrastinate_queue.ProcrastinateSession,
            batches=(1,),
        ),
        *(
            Contender(name, name, node.preparing(name), node.no_session, program=node.PROGRAM)
            for name in node.PACKAGES
            if node.is_there()
        ),
    )
}
