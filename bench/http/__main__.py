"""`python -m bench.http`: send, receive and ack over HTTP and over the Redis protocol of one server, taking turns."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.finding import shown_spread, spread
from bench.report import markdown
from tests.servers.http.processes import HttpServer

ROOT = Path(__file__).resolve().parents[2]
# Connections for each size of batch: enough to keep the server busy, few enough to finish some rounds in a turn.
BATCHES = {1: 50, 100: 8}
DOORS = ("HTTP", "Redis protocol")


def main() -> None:
    arguments = _arguments()
    out = Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    document: dict[str, Any] = {}
    # Beside the results, not in the temporary directory, which may be in memory: there fsync costs nothing.
    with tempfile.TemporaryDirectory(prefix="stores-", dir=out) as folder, HttpServer(Path(folder)) as server:
        server.start()
        for batch in BATCHES:
            document[str(batch)] = _measure(server, batch, arguments.rounds, arguments.seconds)
    written = out / "http.json"
    written.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    _print(document, arguments.rounds)
    print(f"\nWritten: {written}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.http", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="how often the doors take turns (default 5)")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of one turn (default 3)")
    parser.add_argument("--out", default="bench-results", help="where results go (default ./bench-results)")
    return parser.parse_args()


def _measure(server: HttpServer, batch: int, rounds: int, seconds: float) -> dict[str, Any]:
    samples: dict[str, list[dict[str, float]]] = {door: [] for door in DOORS}
    for number in range(rounds):
        for door in DOORS if number % 2 == 0 else reversed(DOORS):
            samples[door].append(_sample(server, door, batch, seconds))
    redis = samples["Redis protocol"]
    return {
        door: {
            "messages": spread([one["messages"] for one in own]),
            "requests": spread([one["requests"] for one in own]),
            "ratio": spread([one["messages"] / theirs["messages"] for one, theirs in zip(own, redis, strict=True)]),
            "server_microseconds": spread([one["server_microseconds"] for one in own]),
            "load_cores": spread([one["load_cores"] for one in own]),
        }
        for door, own in samples.items()
    }


def _sample(server: HttpServer, door: str, batch: int, seconds: float) -> dict[str, float]:
    if door == "HTTP":
        words = ["bench.http.load", server.http_port, BATCHES[batch], batch, seconds]
    else:
        words = ["bench.redis_streams.load", "cycles", server.port, "bananaq", BATCHES[batch], batch, seconds]
    before = server.cpu_seconds()
    done = subprocess.run(
        [sys.executable, "-m", *map(str, words)], capture_output=True, text=True, cwd=ROOT, timeout=600
    )
    if done.returncode:
        raise SystemExit(f"the load over {door} failed:\n{done.stderr}\n{server.said()}")
    told = json.loads(done.stdout)
    # The warm-up is half a second of the same work.
    used = (server.cpu_seconds() - before) * told["seconds"] / (told["seconds"] + 0.5)
    return {
        "messages": told["messages"] / told["seconds"],
        "requests": told.get("requests", 3 * told["messages"]) / told["seconds"],
        "server_microseconds": 1e6 * used / max(1, told["messages"]),
        "load_cores": told["load_cores"],
    }


def _print(document: dict[str, Any], rounds: int) -> None:
    for batch, measured in document.items():
        print(f"\nSend + receive + ack, {BATCHES[int(batch)]} connections, batch {batch}, ", end="")
        print(f"median (low–high) of {rounds} rounds\n")
        rows = [
            [
                door,
                shown_spread(own["messages"]),
                shown_spread(own["requests"]),
                shown_spread(own["ratio"], ".2f"),
                f"{own['server_microseconds']['median']:.0f}",
                f"{own['load_cores']['median']:.2f}",
            ]
            for door, own in measured.items()
        ]
        heads = [
            "",
            "messages/s",
            "requests or commands/s",
            "against Redis protocol",
            "µs of server each",
            "load cores",
        ]
        print(markdown(heads, rows))


if __name__ == "__main__":
    main()
