"""`python -m bench.mariadb`: Penstock on MariaDB beside its peers, on one server, in one run."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from bench import report
from bench.machine import surroundings
from bench.mariadb.contenders import CONTENDERS, PENSTOCK, version
from bench.mariadb.scenarios import SCENARIOS, Ground
from bench.mariadb.server import running


def main() -> None:
    arguments = _arguments()
    out = Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    # Beside the results, not in the temporary directory, which may be in memory: there a flush costs nothing.
    with tempfile.TemporaryDirectory(prefix="servers-", dir=out) as folder, running(Path(folder).resolve()) as server:
        names = [PENSTOCK, *(name for name in arguments.who or CONTENDERS if name != PENSTOCK)]
        ground = Ground(server, names, arguments.seconds, arguments.rounds, arguments.backlog, arguments.held_seconds)
        versions = {name: version(name) for name in names}
        machine = {**surroundings(Path(folder)), "server": server.describe(), "versions": versions}
        print(f"{machine['system']}, {machine['cores']} cores, load {machine['load']:.1f}, Python {machine['python']}")
        print(", ".join(f"{name} {one}" for name, one in {**versions, **machine["server"]}.items()))
        print(f"A flush costs {machine['fsync_microseconds']['over']:,.0f} µs over old data")
        findings = []
        for name in arguments.only or SCENARIOS:
            findings.append(SCENARIOS[name](ground))
            report.print_finding(findings[-1])
    plan = {name: getattr(arguments, name) for name in ("seconds", "rounds", "backlog", "held_seconds")}
    files = report.write(out, machine, plan, findings, name="mariadb")
    print("\nWritten:", ", ".join(str(file) for file in files))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.mariadb", description=__doc__)
    parser.add_argument("--only", action="append", choices=list(SCENARIOS), help="one scenario; may be repeated")
    parser.add_argument("--who", action="append", choices=list(CONTENDERS), help="beside Penstock; may be repeated")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of one turn (default 5)")
    parser.add_argument("--rounds", type=int, default=3, help="how often contenders take turns (default 3)")
    parser.add_argument("--backlog", type=int, default=2_000_000, help="messages waiting (default 2,000,000)")
    parser.add_argument("--held-seconds", type=float, default=60.0, help="how long a transaction is open (default 60)")
    parser.add_argument("--out", default="bench-results", help="where results go (default ./bench-results)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
