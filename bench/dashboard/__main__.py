"""`python -m bench.dashboard`: fill a store, time every page, and measure a worker without and with open tabs."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.dashboard import filling, pages, tabs
from bench.finding import Target
from bench.report import markdown

PAGE_MILLISECONDS = 300.0
LEAST_RATIO = 0.95


def main() -> None:
    arguments = _arguments()
    out = Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    # Beside the results and not in the system's temporary folder, which may be memory: there fsync costs nothing.
    with tempfile.TemporaryDirectory(prefix="stores-", dir=out) as folder:
        url = arguments.url or f"sqlite:///{Path(folder).resolve() / 'store.db'}"
        began = time.perf_counter()
        if not arguments.filled:
            filling.fill(url, arguments.waiting, arguments.finished, arguments.dead)
        document: dict[str, Any] = {"fill_seconds": time.perf_counter() - began, "load": os.getloadavg()[0]}
        with _serving(url, out) as (port, pid):
            document["pages"] = pages.measure(port, pages.paths(url), arguments.rounds)
            turns = tabs.measure(url, port, pid, arguments.rounds, arguments.seconds)
    document["tabs"] = [{name: turn._asdict() for name, turn in one.items()} for one in turns]
    ratios = [one["watched"].rate / one["alone"].rate for one in turns]
    slowest = max(document["pages"].values(), key=lambda one: one["median"])["median"]
    targets = [
        Target(f"slowest page in ms, below {PAGE_MILLISECONDS:.0f}", slowest, slowest < PAGE_MILLISECONDS),
        Target(
            f"a worker's rate with {len(tabs.TABS)} tabs against none, at least {LEAST_RATIO}",
            statistics.median(ratios),
            statistics.median(ratios) >= LEAST_RATIO,
        ),
    ]
    document["targets"] = [{"text": one.text, "measured": one.measured, "is_met": one.is_met} for one in targets]
    (out / "dashboard.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    _print(document, ratios, targets, arguments)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.dashboard", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small store and short turns: to see that it works")
    parser.add_argument("--url", help="the store to fill (default: a new SQLite file)")
    parser.add_argument("--filled", action="store_true", help="the store of --url is filled already")
    parser.add_argument("--rounds", type=int, help="how often each is measured (default 6, with --quick 2)")
    parser.add_argument("--seconds", type=float, help="length of a worker's turn (default 8, with --quick 2)")
    parser.add_argument("--out", default="bench-results", help="where results go (default ./bench-results)")
    arguments = parser.parse_args()
    arguments.rounds = arguments.rounds or (2 if arguments.quick else 6)
    arguments.seconds = arguments.seconds or (2.0 if arguments.quick else 8.0)
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


def _print(document: dict[str, Any], ratios: list[float], targets: list[Target], arguments: argparse.Namespace) -> None:
    print(f"{arguments.waiting:,} waiting, {arguments.finished:,} finished, {arguments.dead:,} dead letters ", end="")
    print(f"(filled in {document['fill_seconds']:.0f} s), {os.cpu_count()} cores, load {document['load']:.1f}\n")
    rows = [[name, f"{one['median']:.0f}", f"{one['longest']:.0f}"] for name, one in document["pages"].items()]
    print(markdown(["page", "median ms", "longest"], rows))
    print(f"\nA worker that sends, receives and acks {tabs.BATCH} at a time, messages/s\n")
    rows = [
        [
            *(f"{one[name]['rate']:,.0f}" for name in ("alone", "watched")),
            f"{ratio:.3f}",
            *(f"{one[name]['server_cores']:.3f}" for name in ("alone", "watched")),
        ]
        for one, ratio in zip(document["tabs"], ratios, strict=True)
    ]
    watched = f"{len(tabs.TABS)} tabs"
    print(markdown(["nobody watches", watched, "ratio", "server cores", f"with {watched}"], rows) + "\n")
    for target in targets:
        print(f"  {'met   ' if target.is_met else 'MISSED'}  {target.text}: {target.measured:,.2f}")


if __name__ == "__main__":
    main()
