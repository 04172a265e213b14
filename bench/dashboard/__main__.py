"""`python -m bench.dashboard`: fill a store, time every page, and measure a worker without and with open tabs."""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import operator
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.dashboard import aged_store, pages, tabs
from bench.dashboard.comparison import compared
from bench.finding import Target, shown_spread, spread
from bench.postgres import server
from bench.report import markdown

PAGE_MILLISECONDS = 300.0
LEAST_RATIO = 0.95


def main() -> None:
    arguments = _arguments()
    out = Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    document: dict[str, Any] = {"machine": {"load": os.getloadavg()[0], "cores": os.cpu_count()}, "engines": {}}
    # Beside the results, not in the temporary directory, which may be in memory: there fsync costs nothing.
    with tempfile.TemporaryDirectory(prefix="stores-", dir=out) as name:
        folder = Path(name).resolve()
        if arguments.url:
            document["engines"]["given"] = _measure(arguments.url, out, arguments)
        if not arguments.url and arguments.engine in (None, "sqlite"):
            document["engines"]["sqlite"] = _measure(f"sqlite:///{folder / 'store.db'}", out, arguments)
        if not arguments.url and arguments.engine in (None, "postgres"):
            with server.running(folder) as postgres_server:
                document["machine"]["postgres"] = postgres_server.describe()
                document["engines"]["postgres"] = _measure(postgres_server.fresh("dashboard"), out, arguments)
    targets = [target for engine, found in document["engines"].items() for target in _report(engine, found, arguments)]
    document["targets"] = [{"text": one.text, "measured": one.measured, "is_met": one.is_met} for one in targets]
    print(f"{os.cpu_count()} cores, load {document['machine']['load']:.1f} at the beginning\n")
    for target in targets:
        print(f"  {'met   ' if target.is_met else 'MISSED'}  {target.text}: {target.measured:,.3g}")
    (out / "dashboard.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _measure(url: str, out: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    began = time.perf_counter()
    if not arguments.filled:
        aged_store.fill(url, arguments.waiting, arguments.finished, arguments.dead)
    found: dict[str, Any] = {"fill_seconds": time.perf_counter() - began}
    with _serving(url, out) as (port, pid):
        # The first sweep counts all messages.
        pages.measure(port, pages.paths(url), 1)
        found["pages"] = pages.measure(port, pages.paths(url), arguments.page_rounds)
        turns = tabs.measure(url, port, pid, arguments.rounds, arguments.seconds)
    found["tabs"] = [{name: turn._asdict() for name, turn in one.items()} for one in turns]
    return found


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.dashboard", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small store and short turns: to see that it works")
    parser.add_argument("--engine", choices=["sqlite", "postgres"], help="one engine")
    parser.add_argument("--url", help="a store of your own instead (it is filled)")
    parser.add_argument("--filled", action="store_true", help="the store of --url is filled already")
    parser.add_argument("--rounds", type=int, help="rounds of four turns of the worker (default 60, with --quick 2)")
    parser.add_argument("--seconds", type=float, help="length of a worker's turn (default 1)")
    parser.add_argument("--out", default="bench-results", help="where results go (default ./bench-results)")
    arguments = parser.parse_args()
    arguments.rounds = arguments.rounds or (2 if arguments.quick else 60)
    arguments.seconds = arguments.seconds or 1.0
    arguments.page_rounds = 2 if arguments.quick else 10
    arguments.waiting = arguments.finished = 20_000 if arguments.quick else 1_000_000
    arguments.dead = 1_000 if arguments.quick else 50_000
    return arguments


@contextlib.contextmanager
def _serving(url: str, out: Path) -> Iterator[tuple[int, int]]:
    """`penstock serve` as a process of its own."""
    resp, port = _free_port(), _free_port()
    settings = {"PENSTOCK_URL": url, "PENSTOCK_RESP_PORT": str(resp), "PENSTOCK_HTTP_PORT": str(port)}
    command = [sys.executable, "-c", "import sys; from penstock.cli import main; sys.exit(main())", "serve"]
    with (out / "dashboard-server.log").open("wb") as log:
        server = subprocess.Popen(command, env={**os.environ, **settings}, stdout=log, stderr=log)
        try:
            _await(port, server)
            yield port, server.pid
        finally:
            server.terminate()
            server.wait(30)


def _await(port: int, server: subprocess.Popen[bytes]) -> None:
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
            return
        assert server.poll() is None, "the server ended while starting"
        time.sleep(0.05)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _report(engine: str, found: dict[str, Any], arguments: argparse.Namespace) -> list[Target]:
    told = f"{arguments.waiting:,} waiting, {arguments.finished:,} finished, {arguments.dead:,} dead letters"
    print(f"{engine}: {told} (filled in {found['fill_seconds']:.0f} s)\n")
    ordered = sorted(found["pages"].items(), key=lambda one: -one[1]["median"])
    times = [[name, f"{one['median']:.0f}", f"{one['longest']:.0f}"] for name, one in ordered]
    print(markdown(["page", "median ms", "longest"], times))
    print(f"\nA worker that sends, receives and acks {tabs.BATCH} at a time, {len(found['tabs'])} rounds\n")
    rounds = [{turn: tabs.Turn(**numbers) for turn, numbers in one.items()} for one in found["tabs"]]
    print(markdown(TURN_HEADER, [_row(text, [one[turn] for one in rounds]) for turn, text in TURNS.items()]))
    rate = compared([one["watched"].rate / one["alone"].rate for one in rounds])
    cost = compared([one["watched"].cost / one["alone"].cost for one in rounds])
    print(f"\nRate with the tabs against without: {rate} with 95 % confidence")
    print(f"Processor time of all for a message: {cost}\n")
    slowest = ordered[0][1]["median"]
    return [
        Target(f"{engine}: slowest page in ms, below {PAGE_MILLISECONDS:.0f}", slowest, slowest < PAGE_MILLISECONDS),
        Target(
            f"{engine}: a worker's rate with {len(tabs.TABS)} tabs against none, surely at least {LEAST_RATIO}",
            rate.low,
            rate.low >= LEAST_RATIO,
        ),
    ]


TURNS = {"alone": "nobody watches", "watched": f"{len(tabs.TABS)} tabs"}
TURN_HEADER = ["", "messages/s", "µs each: worker", "server", "database", "server cores"]


def _row(text: str, turns: list[tabs.Turn]) -> list[str]:
    all_ = functools.reduce(operator.add, turns)
    each = [f"{1e6 * used / all_.messages:.1f}" for used in (all_.worker, all_.server, all_.database)]
    return [text, shown_spread(spread([one.rate for one in turns])), *each, f"{all_.server / all_.seconds:.3f}"]


if __name__ == "__main__":
    main()
