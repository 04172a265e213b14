"""`python -m bench.redis_engine`: measure, print tables, and leave JSON behind."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import penstock
from bench.finding import Target, shown_spread, spread
from bench.machine import surroundings
from bench.redis_engine import backlog
from bench.redis_engine.contenders import CONTENDERS, FRAMEWORKS, JOBS, LIBRARIES, NODE, PENSTOCK, STREAMS, WORKER
from bench.report import markdown
from tests.servers.clients.processes import RedisServer

# Messages of a round, by batch; slow contenders get a part of them.
COUNTS = {1: 300, 100: 5_000, 1_000: 20_000}
PARTS_OF_SLOW = {
    "RQ": {1: 5, 100: 25},
    "arq": {100: 5},
    "BullMQ": {100: 2},
    "Dramatiq": {100: 2},
    "taskiq-redis": {100: 2},
}
FLATNESS = ("send_microseconds", "receive_microseconds", "send_ratio", "receive_ratio")
PARTS = ("lives", "flatness", "memory")


def main() -> None:
    arguments = _arguments()
    out = Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    names = _present()
    # Beside the results, not in the temporary directory, which may be in memory: there fsync costs nothing.
    with tempfile.TemporaryDirectory(prefix="redis-", dir=out) as folder:
        document: dict[str, Any] = {"machine": _machine(Path(folder))}
        with _server(Path(folder), arguments.sync_microseconds) as server:
            server.start()
            with penstock.connect(f"redis://127.0.0.1:{server.port}/0") as store:
                store.migrate()
            if "lives" in arguments.only:
                document["lives"] = {
                    str(batch): _lives(names if batch < 1000 else (PENSTOCK, STREAMS), server.port, batch, arguments)
                    for batch in arguments.batches
                }
            if "flatness" in arguments.only:
                document["flatness"] = backlog.flatness(server.port, arguments.sizes, arguments.rounds)
            if "memory" in arguments.only:
                document["memory"] = backlog.memory(server.port, 4_000)
    targets = _targets(document)
    document["targets"] = [{"text": one.text, "measured": one.measured, "is_met": one.is_met} for one in targets]
    written = out / "redis_engine.json"
    written.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    _print(document, targets)
    print(f"\nWritten: {written}")


def _server(folder: Path, sync_microseconds: int | None) -> RedisServer:
    server = RedisServer(folder, durable=True)
    if sync_microseconds is not None:
        library = folder / "steady_sync.so"
        source = Path(__file__).with_name("steady_sync.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
        server.environment |= {"LD_PRELOAD": str(library), "STEADY_SYNC_MICROSECONDS": str(sync_microseconds)}
    return server


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.redis_engine", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small numbers: to see that it works")
    parser.add_argument("--rounds", type=int, help="how often the contenders take turns (default 5, with --quick 1)")
    parser.add_argument("--only", choices=PARTS, action="append", help="measure this part (again for several)")
    parser.add_argument("--sync-microseconds", type=int, help="let a sync take this long, whatever the disk does")
    parser.add_argument("--batches", type=int, nargs="+", choices=COUNTS, default=list(COUNTS), help="default all")
    parser.add_argument("--out", default="bench-results", help="where results go (default ./bench-results)")
    arguments = parser.parse_args()
    arguments.rounds = arguments.rounds or (1 if arguments.quick else 5)
    arguments.sizes = (0, 20_000) if arguments.quick else (0, 10_000, 100_000, 1_000_000)
    arguments.only = arguments.only or PARTS
    return arguments


def _present() -> tuple[str, ...]:
    """The contenders that are installed; BullMQ is fetched when it is missing."""
    for folder in (JOBS, FRAMEWORKS):
        if not folder.is_dir():
            raise SystemExit(f"{folder} is missing: make .venv/.bench-ready")
    if shutil.which("npm") is None:
        return tuple(name for name in CONTENDERS if name != "BullMQ")
    if not (NODE / "node_modules").is_dir():
        subprocess.run(["npm", "ci", "--silent"], cwd=NODE, check=True)
    return tuple(CONTENDERS)


def _lives(names: tuple[str, ...], port: int, batch: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Contenders take turns; a ratio compares two of the same round, under the same load."""
    count = COUNTS[batch] // (4 if arguments.quick else 1)
    samples: dict[str, list[float]] = {name: [] for name in names}
    for number in range(arguments.rounds):
        # Every other round runs in reverse order, so that neighbours change.
        for name in names if number % 2 == 0 else tuple(reversed(names)):
            own = max(batch, count // PARTS_OF_SLOW.get(name, {}).get(batch, 1) // batch * batch)
            samples[name].append(CONTENDERS[name](port, batch, own).per_second(own))
    return {
        name: {
            "rate": spread(own),
            "ratio": spread([ours / theirs for ours, theirs in zip(samples[_beside(name)], own, strict=True)]),
        }
        for name, own in samples.items()
    }


def _beside(name: str) -> str:
    """Workers are compared with a worker, calls of a client with calls."""
    return WORKER if name == WORKER or name in LIBRARIES else PENSTOCK


def _machine(folder: Path) -> dict[str, Any]:
    version = subprocess.run(["redis-server", "--version"], capture_output=True, text=True, check=True).stdout
    return {**surroundings(folder), "redis": version.partition("v=")[2].split()[0]}


def _targets(document: dict[str, Any]) -> list[Target]:
    targets = []
    lives = document.get("lives", {})
    for name in LIBRARIES:
        for batch, least in (("1", 1.0), ("100", 5.0)):
            if name in lives.get(batch, {}):
                ratio = lives[batch][name]["ratio"]["median"]
                targets.append(Target(f"against {name} at batch {batch}, at least {least:g}", ratio, ratio >= least))
    if "1000" in lives:
        ratio = lives["1000"][STREAMS]["ratio"]["median"]
        targets.append(Target("against Redis Streams at batch 1000, at least 0.5", ratio, ratio >= 0.5))
    if "flatness" in document:
        *_, last = document["flatness"].values()
        for kind in ("send", "receive"):
            ratio = last[f"{kind}_ratio"]["median"]
            targets.append(
                Target(f"{kind} with most waiting against an empty queue, at most 1.15", ratio, ratio <= 1.15)
            )
    return targets


def _print(document: dict[str, Any], targets: list[Target]) -> None:
    machine = document["machine"]
    print(
        f"{machine['system']}, {machine['cores']} cores, load {machine['load']:.1f}, Python {machine['python']}, "
        f"Redis {machine['redis']} (appendonly yes, appendfsync always); an fsync costs "
        f"{machine['fsync_microseconds']['growing']:,.0f} µs"
    )
    for batch, measured in document.get("lives", {}).items():
        print(f"\nWhole lives per second, batch {batch}: median (low–high)\n")
        rows = [[name, shown_spread(own["rate"]), shown_spread(own["ratio"], ".2f")] for name, own in measured.items()]
        print(markdown(["", "messages/s", "Penstock against it"], rows))
    if "flatness" in document:
        print("\nProcessor time of the server for a message, batch 1000, µs\n")
        rows = [
            [
                f"{int(size):,}",
                *(shown_spread(own[kind], ".2f") for kind in FLATNESS),
            ]
            for size, own in document["flatness"].items()
        ]
        print(markdown(["waiting", "send", "receive and ack", "send ÷ empty", "receive and ack ÷ empty"], rows))
    if "memory" in document:
        print("\nMemory of a message with a payload of 200 bytes\n")
        print(markdown(["", "bytes"], [[name, f"{size:,.0f}"] for name, size in document["memory"].items()]))
    print()
    for target in targets:
        print(f"  {'met   ' if target.is_met else 'MISSED'}  {target.text}: {target.measured:,.2f}")


if __name__ == "__main__":
    main()
