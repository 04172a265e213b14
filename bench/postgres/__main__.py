"""`python -m bench.postgres`: Penstock on PostgreSQL beside its peers, on one server, in one run."""

from __future__ import annotations

import argparse
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

from bench import report
from bench.machine import surroundings
from bench.postgres.contenders import CONTENDERS, PENSTOCK, node
from bench.postgres.field import Field
from bench.postgres.scenarios import SCENARIOS
from bench.postgres.server import running


def main() -> None:
    arguments = _arguments()
    out = Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    # Beside the results, not in the temporary directory, which may be in memory: there fsync costs nothing.
    with tempfile.TemporaryDirectory(prefix="servers-", dir=out) as folder, running(Path(folder).resolve()) as server:
        field = Field(
            server,
            arguments.who,
            arguments.seconds,
            arguments.rounds,
            arguments.held_seconds,
            arguments.backlog,
            arguments.quick,
        )
        machine = {**surroundings(Path(folder)), "server": server.describe(), "versions": _versions(arguments.who)}
        _print_machine(machine)
        findings = []
        for name in arguments.only or SCENARIOS:
            findings.append(SCENARIOS[name](field))
            report.print_finding(findings[-1])
    plan = {name: getattr(arguments, name) for name in ("seconds", "rounds", "held_seconds", "backlog")}
    files = report.write(out, machine, plan, findings, name="postgres")
    print("\nWritten:", ", ".join(str(file) for file in files))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.postgres", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, some minutes in all: to see that it works")
    parser.add_argument("--only", action="append", choices=list(SCENARIOS), help="one scenario; may be repeated")
    parser.add_argument("--who", action="append", choices=list(CONTENDERS), help="beside Penstock; may be repeated")
    parser.add_argument("--seconds", type=float, help="length of one turn (default 5, with --quick 1)")
    parser.add_argument("--rounds", type=int, help="how often contenders take turns (default 3, with --quick 1)")
    parser.add_argument("--backlog", type=int, help="messages waiting (default 5,000,000, with --quick 100,000)")
    parser.add_argument("--out", default="bench-results", help="where results go (default ./bench-results)")
    arguments = parser.parse_args()
    quick = arguments.quick
    arguments.seconds = arguments.seconds or (1.0 if quick else 5.0)
    arguments.rounds = arguments.rounds or (1 if quick else 3)
    arguments.backlog = arguments.backlog or (100_000 if quick else 5_000_000)
    arguments.held_seconds = 6.0 if quick else 60.0
    why_not = node.install()
    if why_not:
        print(f"Without {' and '.join(node.PACKAGES)}: {why_not}")
    arguments.who = [PENSTOCK, *(name for name in arguments.who or CONTENDERS if name != PENSTOCK)]
    return arguments


def _versions(names: list[str]) -> dict[str, str]:
    return {name: _version(name) for name in names}


def _version(name: str) -> str:
    if name in node.PACKAGES:
        return node.version(name)
    return metadata.version(CONTENDERS[name].package)


def _print_machine(machine: dict[str, Any]) -> None:
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    load = "" if machine["load"] is None else f", load {machine['load']:.1f}"
    server = machine["server"]
    print(f"{machine['system']}, {machine['cores']} cores{load}, Python {machine['python']}; {versions}")
    print(
        f"PostgreSQL {server['server_version']}, shared_buffers {server['shared_buffers']}; "
        f"fsync {server['fsync']}, synchronous_commit {server['synchronous_commit']}"
    )
    print(f"An fsync costs {machine['fsync_microseconds']['over']:,.0f} µs over old data")


if __name__ == "__main__":
    main()
