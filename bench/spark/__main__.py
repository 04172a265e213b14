"""`python -m bench.spark`: measure, print a table, and leave JSON behind. The contenders take turns in one session."""

from __future__ import annotations

import argparse
import os
from functools import partial
from pathlib import Path
from typing import Any

import penstock
from bench.finding import Target, shown_spread, spread
from bench.report import markdown
from bench.spark.flatness import flatness, growth
from bench.spark.place import JDBC_JAR, add_arguments, jdbc_jars, running, tell
from bench.spark.runs import Runs
from bench.spark.tables import fill, peer_of, settle
from penstock.client.connection import redacted
from penstock.spark.session import open_session

PAYLOAD_BYTES = 160
PAYLOAD = b"x" * PAYLOAD_BYTES
CHUNK = 10_000
# Targets on PostgreSQL.
LEAST_READ_RATIO = 1.2
LEAST_SINK_RATIO = 2.0
LEAST_STREAM_RATE = 250_000
FLAT_SIZES = [1_000_000, 10_000_000]
MOST_GROWTH = 1.15


def main() -> None:
    arguments = _arguments()
    with running(arguments) as (url, folder):
        arguments.jdbc_jars = jdbc_jars(arguments.jdbc_jars, url)
        with penstock.connect(url) as store:
            store.migrate()
        _fill(url, "bench", arguments.messages)
        if arguments.jdbc_jars:
            fill(url, arguments.messages, PAYLOAD)
        measured, costs = _measure(url, folder, arguments)
    load = os.getloadavg()[0]
    print(f"{arguments.messages:,} messages of {PAYLOAD_BYTES} bytes in {redacted(url)}, load {load:.1f}\n")
    print(markdown(["run", "rows/s"], [[name, shown_spread(found)] for name, found in measured.items()]))
    engine = url.partition("://")[0]
    document = {"engine": engine, "rows_per_second": measured, "microseconds_per_row": costs}
    tell(arguments, "spark", document, _targets(measured, costs))


def _fill(url: str, queue: str, messages: int) -> None:
    with penstock.connect(url) as store:
        for first in range(0, messages, CHUNK):
            store.queue(queue).send_many([PAYLOAD] * min(CHUNK, messages - first))


def _measure(
    url: str, folder: Path, arguments: argparse.Namespace
) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    conf = {"spark.driver.memory": "3g"}
    if arguments.jdbc_jars:
        conf["spark.jars"] = arguments.jdbc_jars
    if arguments.java_options:
        conf["spark.driver.extraJavaOptions"] = arguments.java_options
    samples: dict[str, list[float]] = {}
    with open_session("bench", "local[2]", conf) as spark:
        peer = peer_of(url) if arguments.jdbc_jars else None
        runs = Runs(spark, url, folder, arguments.messages, peer, PAYLOAD_BYTES).all()
        for turn in range(arguments.rounds + 1):
            for name, run in runs.items():
                settle(url)
                rate = run()
                if turn:  # the first turn warms up Java
                    samples.setdefault(name, []).append(rate)
                    print(f"  turn {turn}, {name}: {rate:,.0f} rows/s", flush=True)
        costs = {}
        if arguments.full:
            costs = flatness(spark, url, folder, FLAT_SIZES, PAYLOAD_BYTES, partial(_fill, url))
    return {name: spread(found) for name, found in samples.items()}, costs


def _targets(measured: dict[str, dict[str, Any]], costs: dict[str, dict[str, Any]]) -> list[Target]:
    targets = [_least("stream to Parquet, rows/s", measured["stream"]["median"], LEAST_STREAM_RATE)]
    if "batch read by JDBC" in measured:
        read = measured["batch read"]["median"] / measured["batch read by JDBC"]["median"]
        targets.append(_least("batch read to Parquet, times JDBC", read, LEAST_READ_RATIO))
        for name in ("JDBC", "tuned JDBC"):
            sink = measured["sink"]["median"] / measured[f"sink by {name}"]["median"]
            targets.append(_least(f"sink, times {name}", sink, LEAST_SINK_RATIO))
    for name in ("batch read", "stream") if costs else ():
        grown = growth(costs, name)
        text = f"{name}: cost of a row at {FLAT_SIZES[-1]:,}, times that at {FLAT_SIZES[0]:,} messages"
        targets.append(Target(f"{text} (at most {MOST_GROWTH:g})", grown, grown <= MOST_GROWTH))
    return targets


def _least(text: str, measured: float, least: float) -> Target:
    return Target(f"{text} (at least {least:,g})", measured, measured >= least)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=__doc__)
    add_arguments(parser)
    parser.add_argument("--messages", type=int, help="default 2,000,000; with --quick 200,000")
    parser.add_argument("--rounds", type=int, help="how often the contenders take turns (default 3; with --quick 1)")
    parser.add_argument(
        "--jdbc-jars",
        help="jars of a JDBC driver, separated by commas: measures Spark's own as well "
        f"(for PostgreSQL {JDBC_JAR} is found by itself)",
    )
    parser.add_argument("--java-options", help="for the driver, such as where a JDBC driver finds its library")
    parser.add_argument("--full", action="store_true", help="also whether a row costs the same at 1 and at 10 million")
    arguments = parser.parse_args()
    arguments.messages = arguments.messages or (200_000 if arguments.quick else 2_000_000)
    arguments.rounds = arguments.rounds or (1 if arguments.quick else 3)
    return arguments


if __name__ == "__main__":
    main()
