"""The faults of a run, chosen by its seed: one after the other, with quiet times between."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable

from penstock.chaos.crew import Crew
from penstock.chaos.history import Recorder
from penstock.chaos.plan import LEASE_SECONDS
from penstock.chaos.proxy import Proxy
from penstock.chaos.serve_process import ServeProcess
from penstock.chaos.server import Crashing

# How likely each fault is, relative to the others.
SHARES = {"kill": 6, "stop": 2, "freeze": 5, "cut": 5, "serve": 1, "server": 1}
# No fault a quarter of the time: progress between faults shows what they left behind.
CALM_SHARE = 0.25
CALM_SECONDS = 1.0


class Nemesis:
    def __init__(
        self,
        seed: int,
        faults: list[str],
        crew: Crew,
        recorder: Recorder,
        proxies: list[Proxy],
        serve_process: ServeProcess | None,
        server: Crashing | None,
    ) -> None:
        self._dice = random.Random(seed)
        self._crew = crew
        self._recorder = recorder
        self._proxies = proxies
        self._serve_process = serve_process
        self._server = server
        self.counts: Counter[str] = Counter()
        acts: dict[str, Callable[[], None]] = {
            "kill": self._kill,
            "stop": self._stop,
            "freeze": self._freeze,
            "cut": self._cut,
            "serve": self._restart,
            "server": self._crash,
        }
        able = {"serve": serve_process is not None, "server": server is not None, "cut": bool(proxies)}
        self._acts = {name: act for name, act in acts.items() if name in faults and able.get(name, True)}

    def disturb(self) -> None:
        """Inject one fault, or none."""
        if not self._acts or self._dice.random() < CALM_SHARE:
            time.sleep(CALM_SECONDS * self._dice.random())
        else:
            names = [*self._acts]
            name = self._dice.choices(names, [SHARES[one] for one in names])[0]
            self._acts[name]()
            self.counts[name] += 1
        time.sleep(self._dice.uniform(0.05, 0.4))

    def _kill(self) -> None:
        member = self._dice.choice(self._crew.members)
        self._recorder.note("fault", fault="kill", target=member.plan.process)
        self._crew.kill(member)

    def _stop(self) -> None:
        member = self._dice.choice([one for one in self._crew.members if one.plan.role != "follower"])
        if member.thaw_at is None:
            self._recorder.note("fault", fault="stop", target=member.plan.process)
            self._crew.retire(member)

    def _freeze(self) -> None:
        """Freeze for longer than a lease, or for a moment."""
        member = self._dice.choice(self._crew.members)
        if member.thaw_at is None:
            self._recorder.note("fault", fault="freeze", target=member.plan.process)
            self._crew.freeze(member, self._dice.choice([0.2, 1.3 * LEASE_SECONDS]))

    def _cut(self) -> None:
        self._recorder.note("fault", fault="cut")
        self._dice.choice(self._proxies).cut(self._dice)

    def _restart(self) -> None:
        assert self._serve_process is not None
        self._recorder.note("fault", fault="serve")
        self._serve_process.restart()

    def _crash(self) -> None:
        assert self._server is not None
        # Recorded before and after: the exact time is unknown, and calls in between may be lost.
        self._recorder.note("crash")
        self._server.crash()
        self._recorder.note("crash")
        time.sleep(self._dice.uniform(0, 0.3))
        self._server.start()
