"""One process of a fault test: `python -m tests.faults.actor ROLE URL HISTORIES PROCESS SEED`.

It does what its role says until its standard input ends or it is killed, and records what it does as the processes of
`penstock chaos` do. Roles that vanish kill themselves at a named moment: that is exact where killing from outside is
luck.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import penstock
from penstock.chaos.client_role import ClientRole
from penstock.chaos.history import Recorder
from penstock.chaos.plan import ActorPlan
from penstock.chaos.ports.python import PythonPort
from penstock.chaos.store_roles import StoreRole

READY = "ready\n"
QUEUES = {"work": "work"}


class Vanishing(ClientRole):
    def after_receive(self) -> None:
        if self.receive("work", "default"):
            vanish()

    def while_settling(self) -> None:
        got = self.receive("work", "default")
        for taken in got[: len(got) // 2]:
            self.settle("work", "default", taken, "ack", None)
        if got:
            vanish()

    def after_send(self) -> None:
        for _ in range(self.random.randint(1, 5)):
            self.send()
        vanish()


def main(role: str, url: str, histories: str, process: str, seed: str) -> None:
    plan = ActorPlan(role, process, histories, int(seed), url, QUEUES)
    recorder = Recorder(Path(histories), process)
    with penstock.connect(url) as store:
        step = steps(plan, recorder, store)[role]
        sys.stdout.write(READY)
        sys.stdout.flush()
        while not told_to_stop(0):
            step()


def steps(plan: ActorPlan, recorder: Recorder, store: penstock.Store) -> dict[str, Callable[[], None]]:
    client, keeper = Vanishing(plan, recorder, PythonPort(store), 0), StoreRole(plan, recorder, store)

    def vanish_while_sweeping() -> None:
        keeper.sweep()
        vanish()

    return {
        "sender": client.send,
        "consumer": client.consume,
        "sweeper": keeper.sweep,
        "vanish-after-receive": client.after_receive,
        "vanish-while-settling": client.while_settling,
        "vanish-while-sweeping": vanish_while_sweeping,
        "vanish-after-send": client.after_send,
    }


def vanish() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def told_to_stop(within_seconds: float) -> bool:
    readable, _, _ = select.select([sys.stdin], [], [], within_seconds)
    return bool(readable)


if __name__ == "__main__":
    main(*sys.argv[1:])
