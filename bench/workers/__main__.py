"""`python -m bench.workers`: no-op handlers of Penstock and its peers in turns, and the time from send to handler."""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from bench.finding import Target, percentile, shown_spread, spread
from bench.machine import fsync_microseconds
from bench.postgres import server
from bench.report import markdown
from bench.rounds import ratios
from bench.workers import latency
from bench.workers.contenders import POSTGRES, SQLITE, sqlite_place
from bench.workers.turns import run_turn

LEAST_RATIO = 3.0
P99_MILLISECONDS = 20.0
TURN_SECONDS = 4.0
PACKAGES = ("penstock-queue", "huey", "pgqueuer", "procrastinate", "psycopg", "asyncpg")
Place = Callable[[str, int], str]


def main() -> None:
    arguments = _arguments()
    out = Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    document: dict[str, Any] = {"machine": {}, "rates": {}, "latency": {}}
    with tempfile.TemporaryDirectory(prefix="stores-", dir=out) as name:
        folder = Path(name)
        document["machine"] = _machine(folder)

        def sqlite(contender: str, turn: int) -> str:
            own = folder / f"{contender}-{turn}"
            own.mkdir()
            return sqlite_place(contender, own)

        if arguments.engine in (None, "sqlite"):
            document["rates"]["sqlite"] = _rates("sqlite", SQLITE, sqlite, arguments)
            place = sqlite("latency", 0)
            document["latency"]["sqlite"] = latency.measure(place, arguments.messages, arguments.every_seconds)
        if arguments.engine in (None, "postgres"):
            with server.running(folder) as postgres_server:
                document["machine"]["postgres"] = postgres_server.describe()

                def postgres(contender: str, turn: int) -> str:
                    return postgres_server.fresh(f"bench_{contender.replace(' ', '_').lower()}_{turn}")

                document["rates"]["postgres"] = _rates("postgres", POSTGRES, postgres, arguments)
                place = postgres("latency", 0)
                document["latency"]["postgres"] = latency.measure(place, arguments.messages, arguments.every_seconds)
    targets = _report(document)
    document["targets"] = [{"text": one.text, "measured": one.measured, "is_met": one.is_met} for one in targets]
    written = out / "workers.json"
    written.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(f"\nWritten: {written}")


def _rates(
    engine: str, contenders: Mapping[str, Any], place: Place, arguments: argparse.Namespace
) -> dict[str, dict[str, list[float]]]:
    """In turns, each in a fresh store and a fresh process. A short turn before is not counted: it shows how many
    messages each can handle in a few seconds, and a rate needs no more."""
    found: dict[str, dict[str, list[float]]] = {name: {"per_second": [], "processor": []} for name in contenders}
    counts = {}
    for name in contenders:
        warm = run_turn(engine, name, place(name, 0), max(100, arguments.count // 50))
        counts[name] = max(arguments.count // 50, min(arguments.count, int(warm["per_second"] * TURN_SECONDS)))
    for turn in range(1, arguments.rounds + 1):
        for name in contenders:
            for key, value in run_turn(engine, name, place(name, turn), counts[name]).items():
                found[name][key].append(value)
    return found


def _report(document: dict[str, Any]) -> list[Target]:
    targets: list[Target] = []
    for engine, rates in document["rates"].items():
        rows = [
            [name, shown_spread(spread(one["per_second"])), f"{1e6 * spread(one['processor'])['median']:,.1f}"]
            for name, one in rates.items()
        ]
        print(f"\nNo-op handlers on {engine}, one process\n")
        print(markdown(["worker", "messages per second", "processor µs per message"], rows))
        per_second = {name: one["per_second"] for name, one in rates.items()}
        peers = [name for name in rates if not name.startswith("penstock")]
        best = max(peers, key=lambda name: spread(per_second[name])["median"])
        ratio = spread(ratios(per_second, "penstock", best))
        print(f"\nPenstock ÷ {best}: {shown_spread(ratio, ',.1f')}")
        text = f"{engine}: at least {LEAST_RATIO:g} times {best}, the fastest peer"
        targets.append(Target(text, ratio["median"], ratio["median"] >= LEAST_RATIO))
    for engine, samples in document["latency"].items():
        half, most = percentile(samples, 0.5), percentile(samples, 0.99)
        print(f"\nSend to handler on {engine}, light load: median {half:.1f} ms, p99 {most:.1f} ms, n={len(samples)}")
        if engine == "postgres":
            targets.append(Target(f"{engine}: p99 below {P99_MILLISECONDS:g} ms", most, most < P99_MILLISECONDS))
    for target in targets:
        print(f"  {'met   ' if target.is_met else 'MISSED'}  {target.text}: {target.measured:,.2f}")
    return targets


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.workers", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a minute in all: to see that it works")
    parser.add_argument("--engine", choices=["sqlite", "postgres"], help="one engine")
    parser.add_argument("--rounds", type=int, help="how often the contenders take turns (default 7, with --quick 2)")
    parser.add_argument("--count", type=int, help="messages of one turn (default 50,000, with --quick 5,000)")
    parser.add_argument("--out", default="bench-results", help="where results go (default ./bench-results)")
    arguments = parser.parse_args()
    arguments.rounds = arguments.rounds or (2 if arguments.quick else 7)
    arguments.count = arguments.count or (5_000 if arguments.quick else 50_000)
    arguments.messages = 50 if arguments.quick else 500
    arguments.every_seconds = 0.05
    return arguments


def _machine(folder: Path) -> dict[str, Any]:
    return {
        "measured_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "python": platform.python_version(),
        "fsync_microseconds": fsync_microseconds(folder),
        "packages": {name: metadata.version(name) for name in PACKAGES},
    }


if __name__ == "__main__":
    main()
