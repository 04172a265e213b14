"""`python -m bench`: run the scenarios, print the results, and write JSON and a plot."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from bench import machine, report
from bench.plan import Plan
from bench.scenarios import SCENARIOS


def main() -> None:
    arguments = _arguments()
    out = Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    chosen = {name: run for name, run in SCENARIOS.items() if arguments.only in (None, name)}
    # Beside the results, not in the temporary directory, which may be in memory: there fsync costs nothing.
    with tempfile.TemporaryDirectory(prefix="stores-", dir=out) as folder:
        plan = Plan(Path(folder), arguments.seconds, quick=arguments.quick, full=arguments.full)
        surroundings = machine.describe(plan.folder)
        report.print_machine(surroundings)
        findings = []
        for run in chosen.values():
            finding = run(plan)
            report.print_finding(finding)
            findings.append(finding)
    files = report.write(out, surroundings, plan.as_json(), findings)
    print("\nWritten:", ", ".join(str(file) for file in files))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Measure Penstock and its peers side by side, in one run."
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, a minute in all: to see that it works")
    parser.add_argument("--full", action="store_true", help="also with 5,000,000 messages waiting")
    parser.add_argument("--only", choices=list(SCENARIOS), help="one scenario")
    parser.add_argument("--seconds", type=float, help="how long each thing is measured (default 3, with --quick 0.5)")
    parser.add_argument("--out", default="bench-results", help="where results go (default ./bench-results)")
    arguments = parser.parse_args()
    if arguments.seconds is None:
        arguments.seconds = 0.5 if arguments.quick else 3.0
    if arguments.seconds <= 0:
        parser.error(f"--seconds must be more than 0, not {arguments.seconds}")
    return arguments


if __name__ == "__main__":
    main()
