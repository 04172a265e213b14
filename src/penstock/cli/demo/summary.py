"""The result of the demo, for people and as a JSON document."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.cli.demo import plan
from penstock.cli.demo.findings import DemoCheck, Findings
from penstock.cli.demo.pipeline import PipelineResult
from penstock.cli.demo.story import Report
from penstock.cli.format import cell, escaped, marked, table
from penstock.cli.messages import timeline
from penstock.domain.lifecycle import DEAD_OUTCOMES, OUTCOMES
from penstock.settings import HttpSettings


def document(url: str, report: Report, findings: Findings) -> dict[str, Any]:
    return {
        "ok": findings.ok,
        "url": url,
        "seconds": round(report.seconds, 3),
        "sent": plan.sent_counts(),
        "groups": [
            {"queue": queue, "group": group, "outcomes": stats.outcomes}
            for (queue, group), stats in findings.stats.items()
        ],
        "consumers": report.tallies,
        "taken_over": findings.taken_over,
        "dead_letters": [
            {"queue": queue, "outcome": outcome, "reason": reason, "count": count}
            for (queue, outcome, reason), count in findings.dead.items()
        ],
        "trail": {"queue": plan.ORDERS, "id": findings.story_id, "entries": findings.trail},
        "checks": findings.verdicts,
    }


def view(url: str, report: Report, findings: Findings, outcome: PipelineResult) -> RenderableType:
    return Group(
        Text(),
        _heading("How the messages ended"),
        _outcomes_view(findings),
        Text(),
        _heading("Who did the work"),
        _consumers_view(report),
        Text(),
        _heading("Dead letters by reason"),
        _dead_view(findings),
        Text(),
        _heading("The life of an order whose consumer was killed"),
        timeline(findings.trail),
        Text(),
        _heading("Checks"),
        marked(_verdict_line(verdict) for verdict in findings.verdicts),
        Text(),
        _heading("What the pipeline found"),
        _pipeline_view(outcome),
        Text(),
        _end_view(report, findings),
        Text(),
        _heading("Try next"),
        *_next_view(url, findings),
    )


def _heading(text: str) -> Text:
    return Text(text, style="bold")


def _outcomes_view(findings: Findings) -> Table:
    shown = [name for name in OUTCOMES if any(stats.outcomes.get(name) for stats in findings.stats.values())]
    made = table("queue", "group", "sent", *shown, numbers=("sent", *shown))
    sent = plan.sent_counts()
    for (queue, group), stats in findings.stats.items():
        counts = [_count(name in DEAD_OUTCOMES, stats.outcomes.get(name, 0)) for name in shown]
        made.add_row(queue, group, cell(sent[queue]), *counts)
    return made


def _count(dead: bool, count: int) -> Text:
    return Text(f"{count:,}", style="dim" if count == 0 else "red" if dead else "green")


def _consumers_view(report: Report) -> Table:
    columns = ("received", "tried again", "lost to others")
    made = table("consumer", *columns, numbers=columns)
    for name, tally in report.tallies.items():
        made.add_row(name, cell(tally.received), cell(tally.retried), cell(tally.lost))
    made.add_row(plan.VICTIM, cell(len(report.killed_ids)), cell(0), Text("all: it was killed", style="red"))
    return made


def _dead_view(findings: Findings) -> Table:
    made = table("queue", "outcome", "reason", "count", numbers=("count",), folds=("reason",))
    for (queue, outcome, reason), count in sorted(findings.dead.items()):
        made.add_row(cell(queue), cell(outcome), cell(reason), cell(count))
    return made


def _verdict_line(verdict: DemoCheck) -> tuple[Text, Text]:
    mark = Text("✓", style="bold green") if verdict.ok else Text("✗", style="bold red")
    return mark, Text.assemble(verdict.name, (f": {verdict.found}", "dim"))


def _pipeline_view(outcome: PipelineResult) -> RenderableType:
    if outcome.skipped is not None:
        return escaped(f"It did not run: {outcome.skipped}", style="dim")
    if outcome.failed is not None:
        return escaped(f"It failed: {outcome.failed}", style="bold red")
    findings = marked((Text("·", style="dim"), escaped(sentence)) for sentence in outcome.sentences)
    return Group(findings, Text.assemble("The whole report, for a browser: ", (str(outcome.report), "bold")))


def _end_view(report: Report, findings: Findings) -> Text:
    if findings.ok:
        return Text(f"All checks passed. The messages took {report.seconds:.1f} s.", style="bold green")
    return Text(f"Some checks failed. The messages took {report.seconds:.1f} s.", style="bold red")


def _next_view(url: str, findings: Findings) -> list[Text]:
    commands = [
        "status",
        f"dead {plan.ORDERS} --limit 5",
        f"explain {plan.ORDERS} {findings.story_id}",
        f"redrive {plan.ORDERS} --outcome rejected",
        f"send {plan.ORDERS} '{{\"order\": 1}}'",
        f"receive {plan.ORDERS} --ack",
    ]
    return [
        Text(f"export PENSTOCK_URL={url}"),
        *(Text(f"{_program()} {words}") for words in commands),
        Text(),
        Text.assemble(
            "The dashboard shows all of this: run ",
            (_serve(), "bold"),
            " and open ",
            (f"http://localhost:{HttpSettings().port}", "bold"),
        ),
    ]


def _serve() -> str:
    """The command that starts the server; in a checkout `make` also installs its dependencies."""
    program = _program()
    return "make serve" if program.startswith(".venv") and Path("Makefile").exists() else f"{program} serve"


def _program() -> str:
    """The command of the program: its name when it is on the PATH, else the path it was called by."""
    if shutil.which("penstock"):
        return "penstock"
    called = Path(sys.argv[0])
    return os.path.relpath(called) if called.stem == "penstock" else f"{sys.executable} -m penstock.cli"
