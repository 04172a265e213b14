"""`python -m bench.redis_streams`: measure, print tables, and leave JSON behind."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from bench.finding import Target, percentile, shown_spread
from bench.machine import surroundings
from bench.redis_streams import idle, rates
from bench.redis_streams.contenders import PENSTOCK, PENSTOCK_STREAMS, running
from bench.report import markdown

# Targets of the server.
LEAST_RATIO = {"1": 0.5, "16": 0.3}
LONE_P99_MILLISECONDS = 5.0
IDLE_CPU_PERCENT = 2.0
IDLE_RSS_MB = 200.0
PARTS = ("rates", "lone", "idle")


def main() -> None:
    arguments = _arguments()
    out = Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    # Beside the results, not in the temporary directory, which may be in memory: there fsync costs nothing.
    with tempfile.TemporaryDirectory(prefix="stores-", dir=out) as folder:
        document: dict[str, Any] = {"machine": _machine(Path(folder))}
        if "rates" in arguments.only:
            with running(Path(folder) / "busy") as contenders:
                document["rates"] = rates.measure(contenders, arguments.rounds, arguments.seconds)
        if "lone" in arguments.only:
            with running(Path(folder) / "lone") as contenders:
                document["lone_send_milliseconds"] = rates.lone_sends(contenders, arguments.rounds, arguments.sends)
        if "idle" in arguments.only:
            with running(Path(folder) / "idle") as contenders:
                document["idle"] = idle.measure(contenders, arguments.consumers, arguments.idle_seconds)
    targets = _targets(document)
    document["targets"] = [{"text": one.text, "measured": one.measured, "is_met": one.is_met} for one in targets]
    written = out / "redis_streams.json"
    written.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    _print(document, targets, arguments)
    print(f"\nWritten: {written}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.redis_streams", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="half a minute in all: to see that it works")
    parser.add_argument("--rounds", type=int, help="how often the contenders take turns (default 7, with --quick 2)")
    parser.add_argument("--seconds", type=float, help="length of one turn (default 3, with --quick 1)")
    parser.add_argument("--only", choices=PARTS, action="append", help="measure this part (again for several)")
    parser.add_argument("--out", default="bench-results", help="where results go (default ./bench-results)")
    arguments = parser.parse_args()
    arguments.rounds = arguments.rounds or (2 if arguments.quick else 7)
    arguments.seconds = arguments.seconds or (1.0 if arguments.quick else 3.0)
    arguments.idle_seconds = 3.0 if arguments.quick else 15.0
    arguments.sends = 100 if arguments.quick else 300
    arguments.consumers = 1000
    arguments.only = arguments.only or PARTS
    return arguments


def _machine(folder: Path) -> dict[str, Any]:
    redis = subprocess.run(["redis-server", "--version"], capture_output=True, text=True, check=True).stdout
    return {**surroundings(folder), "redis": redis.partition("v=")[2].split()[0]}


def _targets(document: dict[str, Any]) -> list[Target]:
    targets = []
    for name in (PENSTOCK, PENSTOCK_STREAMS):
        for pipeline, measured in document.get("rates", {}).items():
            least, ratio = LEAST_RATIO[pipeline], measured[name]["ratio"]["median"]
            text = f"{name}: rate against Redis, pipeline {pipeline}, at least {least}"
            targets.append(Target(text, ratio, ratio >= least))
        if "lone_send_milliseconds" in document:
            p99 = percentile(document["lone_send_milliseconds"][name], 0.99)
            text = f"{name}: p99 of a lone send in ms, below {LONE_P99_MILLISECONDS}"
            targets.append(Target(text, p99, p99 < LONE_P99_MILLISECONDS))
        for queues in document.get("idle", {}).get(name, {}):
            cpu, rss = (document["idle"][name][queues][key] for key in ("cpu_percent", "rss_mb"))
            text = f"{name}: % of a core for idle consumers of {queues}, below {IDLE_CPU_PERCENT}"
            targets.append(Target(text, cpu, cpu < IDLE_CPU_PERCENT))
            text = f"{name}: MB with idle consumers of {queues}, below {IDLE_RSS_MB}"
            targets.append(Target(text, rss, rss < IDLE_RSS_MB))
    return targets


def _print(document: dict[str, Any], targets: list[Target], arguments: argparse.Namespace) -> None:
    machine = document["machine"]
    print(
        f"{machine['system']}, {machine['cores']} cores, load {machine['load']:.1f}, Python {machine['python']}, ",
        end="",
    )
    print(f"Redis {machine['redis']} (appendonly yes, appendfsync always); ", end="")
    fsync = machine["fsync_microseconds"]
    print(
        f"an fsync costs {fsync['growing']:,.0f} µs at the end of a growing file, {fsync['over']:,.0f} µs over old data"
    )
    for pipeline, measured in document.get("rates", {}).items():
        print(f"\nSend + get + ack per second: {rates.CONNECTIONS} connections, pipeline {pipeline}, ", end="")
        print(f"median (low–high) of {arguments.rounds} rounds\n")
        rows = [
            [
                name,
                shown_spread(own["rate"]),
                shown_spread(own["ratio"], ".2f"),
                f"{own['server_cores']['median']:.2f}",
                f"{own['server_microseconds']['median']:.0f}",
                f"{own['load_cores']['median']:.2f}",
            ]
            for name, own in measured.items()
        ]
        print(markdown(["", "messages/s", "against Redis", "server cores", "µs each", "load cores"], rows))
    if "lone_send_milliseconds" in document:
        print("\nOne send at a time, nothing else going on, ms\n")
        rows = [
            [name, f"{statistics.median(taken):.2f}", f"{percentile(taken, 0.99):.2f}", f"{max(taken):.2f}"]
            for name, taken in document["lone_send_milliseconds"].items()
        ]
        print(markdown(["", "p50", "p99", "longest"], rows))
    if "idle" in document:
        print(f"\n{arguments.consumers} consumers that wait\n")
        columns = ("cpu_percent", "cpu_before_percent", "rss_mb", "rss_before_mb")
        rows = [
            [f"{name}, {queues}", *(f"{own[key]:.2f}" for key in columns)]
            for name, several in document["idle"].items()
            for queues, own in several.items()
        ]
        print(markdown(["", "% of a core", "without them", "MB", "without them"], rows))
    print()
    for target in targets:
        print(f"  {'met   ' if target.is_met else 'MISSED'}  {target.text}: {target.measured:,.2f}")


if __name__ == "__main__":
    main()
