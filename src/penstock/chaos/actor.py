"""One process of a run, `python -m penstock.chaos.actor PLAN`. It performs its role until EOF on standard input, or
until it is killed."""

from __future__ import annotations

import faulthandler
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable

import penstock
from penstock.chaos.client_role import ClientRole
from penstock.chaos.history import Recorder
from penstock.chaos.operator_role import OperatorRole
from penstock.chaos.plan import ActorPlan
from penstock.chaos.ports.http import HttpPort
from penstock.chaos.ports.port import LOST, Port
from penstock.chaos.ports.python import AsyncPort, EventLoop, PythonPort
from penstock.chaos.ports.resp import RespPort
from penstock.chaos.store_roles import StoreRole, insist
from penstock.chaos.worker_role import WorkerRole

READY = "ready\n"
THREADS = {"async": 4}
QUIET_READS = 3
START_SECONDS = 60


def main(text: str) -> None:
    faulthandler.enable()
    plan = ActorPlan.decoded(text)
    recorder = Recorder(plan.histories, plan.process)
    sys.stdout.write(READY)
    sys.stdout.flush()
    if plan.role == "client":
        run_clients(plan, recorder)
    elif plan.role == "worker":
        threading.Thread(target=stop_at_end_of_input, daemon=True).start()
        run_worker(plan, recorder)
    elif plan.role == "follower":
        run_follower(plan, recorder)
    elif plan.role == "operator":
        repeat(OperatorRole(plan, recorder, opened(plan)).step)
    else:
        role = StoreRole(plan, recorder, opened(plan))
        steps = {"sweeper": role.sweep, "batcher": role.run_batch, "sender": role.send_in_transaction}
        repeat(steps[plan.role])


def opened(plan: ActorPlan) -> penstock.Store:
    return insist(lambda: penstock.connect(plan.url))


def run_clients(plan: ActorPlan, recorder: Recorder) -> None:
    make = ports(plan)
    threads = [
        threading.Thread(target=repeat_or_die, args=(ClientRole(plan, recorder, make(number), number).step,))
        for number in range(THREADS.get(plan.protocol, 2))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def ports(plan: ActorPlan) -> Callable[[int], Port]:
    if plan.protocol == "python":
        store = opened(plan)
        return lambda number: PythonPort(store)
    if plan.protocol == "async":
        loop = insist(lambda: EventLoop(plan.url))
        return lambda number: AsyncPort(loop)
    if plan.protocol == "resp":
        return lambda number: RespPort(plan.resp_url)
    if plan.protocol == "http":
        return lambda number: HttpPort(plan.http_url)
    from penstock.chaos.ports.sql import SqlPort

    return lambda number: SqlPort(plan.url, "cancel" in plan.faults, plan.seed + number)


def run_worker(plan: ActorPlan, recorder: Recorder) -> None:
    """A worker does not start while its store is unavailable; a running one survives an outage. The stop signal may
    have interrupted a start that was about to fail."""
    began = time.monotonic()
    while not input_has_ended(0):
        try:
            WorkerRole(plan, recorder).run(opened(plan))
            return
        except penstock.HandlerUnavailable:
            # Handlers whose leases were lost still run and occupy all slots: a supervisor would restart this worker.
            continue
        except LOST:
            if time.monotonic() - began > START_SECONDS:
                raise
            time.sleep(0.2)


def run_follower(plan: ActorPlan, recorder: Recorder) -> None:
    role = StoreRole(plan, recorder, opened(plan))
    port = RespPort(plan.resp_url)

    def read() -> bool:
        try:
            return role.follow(port)
        except LOST:
            time.sleep(0.1)
            return True

    repeat(read)
    # All other roles have stopped: read the rest of the stream.
    quiet = 0
    while quiet < QUIET_READS:
        quiet = 0 if read() else quiet + 1
    recorder.note("followed", queue=plan.queues["stream"])


def repeat(step: Callable[[], object]) -> None:
    while not input_has_ended(0):
        step()


def repeat_or_die(step: Callable[[], object]) -> None:
    """End the process when a thread fails: the other threads must not hide the failure."""
    try:
        repeat(step)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(70)


def input_has_ended(within_seconds: float) -> bool:
    readable, _, _ = select.select([sys.stdin], [], [], within_seconds)
    return bool(readable)


def stop_at_end_of_input() -> None:
    while not input_has_ended(1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main(sys.argv[1])
