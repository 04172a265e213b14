"""For people: tables on the screen and a plot. For machines: one JSON document."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.finding import Finding

# Nothing durable is this fast on a disk.
SUSPICIOUS_FSYNC_MICROSECONDS = 20


def print_machine(machine: dict[str, Any]) -> None:
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    load = "" if machine["load"] is None else f", load {machine['load']:.1f}"
    print(f"{machine['system']}, {machine['cores']} cores{load}, Python {machine['python']}; {packages}")
    print(f"SQLite {machine['sqlite_of_penstock']} in Penstock, {machine['sqlite_of_peers']} in its peers")
    over, growing = machine["fsync_microseconds"]["over"], machine["fsync_microseconds"]["growing"]
    print("Everybody runs with journal_mode=wal and synchronous=2 (full), read back from each")
    print(f"An fsync costs {over:,.0f} µs over old data, {growing:,.0f} µs when the file grows")
    if over < SUSPICIOUS_FSYNC_MICROSECONDS:
        print("That is too little for a disk: choose another place with --out, or the numbers say nothing.")


def print_finding(finding: Finding) -> None:
    print(f"\n{finding.title}\n")
    print(markdown(finding.header, finding.rows))
    for note in finding.notes:
        print(f"\n{note}", end="")
    print("\n" if finding.notes else "")
    for target in finding.targets:
        print(f"  {'met   ' if target.is_met else 'MISSED'}  {target.text}: {target.measured:,.2f}")


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table that can be read as it is and pasted into a document."""
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        first, *others = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        return "| " + " | ".join([first, *(cell.strip().rjust(len(cell)) for cell in others)]) + " |"

    rule = "|" + "|".join("-" * (width + 1) + ("-" if place == 0 else ":") for place, width in enumerate(widths)) + "|"
    return "\n".join([line(header), rule, *(line(row) for row in rows)])


def write(
    out: Path, machine: dict[str, Any], plan: dict[str, Any], findings: Sequence[Finding], name: str = "results"
) -> list[Path]:
    document = {
        "machine": machine,
        "plan": plan,
        "findings": {finding.name: _as_json(finding) for finding in findings},
    }
    results = out / f"{name}.json"
    results.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    picture = out / f"{name}.png"
    _plot(picture, findings)
    return [results, picture]


def _as_json(finding: Finding) -> dict[str, Any]:
    targets = [{"text": one.text, "measured": one.measured, "is_met": one.is_met} for one in finding.targets]
    return {"title": finding.title, "data": finding.data, "targets": targets}


def _plot(picture: Path, findings: Sequence[Finding]) -> None:
    # Imported late, so that measurements do not include loading the plot library.
    from matplotlib.figure import Figure

    columns = min(2, len(findings))
    lines = -(-len(findings) // columns)
    figure = Figure(figsize=(7 * columns, 4.5 * lines), layout="constrained")
    for place, finding in enumerate(findings, 1):
        finding.draw(figure.add_subplot(lines, columns, place))
    figure.savefig(picture, dpi=120)
