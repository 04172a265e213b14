"""chaos"""

from __future__ import annotations

import json
import random
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from penstock.chaos.plan import FAULTS, PROTOCOLS, SERVERS
from penstock.cli.format import escaped, fields_table, sentence
from penstock.cli.options import count_option, seconds_option
from penstock.cli.session import CliSession
from penstock.domain.errors import InvalidInput
from penstock.domain.validation import nearest, shown

if TYPE_CHECKING:
    from penstock.chaos.run import Verdict

STYLES = {"ok": "bold green", "unknown": "bold yellow"}
CODES = {"ok": 0, "unknown": 2}


OwnServerKind = StrEnum("OwnServerKind", {name: name for name in SERVERS})  # type: ignore[misc]


def chaos(
    session: CliSession,
    seconds: Annotated[float, seconds_option("--seconds", "Disturb the processes for so long.")] = 30,
    seed: Annotated[
        int | None, count_option("--seed", "Choose faults and messages by this number; else by chance.")
    ] = None,
    faults: Annotated[str, typer.Option(metavar="LIST", help="Which faults, separated by commas.")] = ",".join(FAULTS),
    protocols: Annotated[str, typer.Option(metavar="LIST", help="Which protocols, separated by commas.")] = ",".join(
        PROTOCOLS
    ),
    handler: Annotated[
        str | None, typer.Option(metavar="MODULE:FUNCTION", help="A handler of your own for the workers.")
    ] = None,
    server: Annotated[
        OwnServerKind | None,
        typer.Option(
            metavar="KIND",
            help="Use a store of the run's own instead: `sqlite`, `mariadb`, `redis`, `redis-cluster`, or a "
            "PostgreSQL, `embedded`, `pooled` behind PgBouncer, or `pair` and `async-pair`, which fail over to a "
            "synchronous or asynchronous standby.",
        ),
    ] = None,
    keep: Annotated[Path | None, typer.Option(metavar="DIR", help="Keep the histories in this directory.")] = None,
) -> None:
    """Run producers, consumers and workers with faults, and judge what they saw by the laws.

    Uses queues of its own in the store, and removes them. Exits with 1 when a law does not hold, with the smallest
    history that shows it, and with 2 when too little happened to tell.

    Example: penstock chaos --url postgresql://app@localhost/app --seconds 60 --seed 7
    """
    # Only here: every other command would start a tenth later.
    from penstock.chaos.run import RunOptions, run

    if handler is not None and not all(handler.partition(":")):
        raise InvalidInput(f"handler must be MODULE:FUNCTION, not {shown(handler)}")
    options = RunOptions(
        None if server is not None else session.settings().url,
        seconds,
        random.SystemRandom().randrange(1_000_000) if seed is None else seed,
        _chosen("fault", faults, FAULTS),
        _chosen("protocol", protocols, PROTOCOLS),
        handler,
        keep,
        server="embedded" if server is None else server.value,
    )
    verdict = run(options, lambda text: session.hint(f"seed {options.seed}: {text}"))
    session.answer(_document(verdict), *_page(verdict))
    if CODES.get(verdict.word, 1):
        raise typer.Exit(CODES.get(verdict.word, 1))


def _chosen(kind: str, text: str, known: tuple[str, ...]) -> tuple[str, ...]:
    chosen = tuple(word.strip() for word in text.split(",") if word.strip())
    for word in chosen:
        if word not in known:
            raise InvalidInput(f"unknown {kind} {shown(word)}: there are {', '.join(known)}{nearest(word, known)}")
    return chosen


def _document(verdict: Verdict) -> dict[str, Any]:
    return {
        "seed": verdict.seed,
        "verdict": verdict.word,
        "counts": verdict.counts,
        "violations": [one._asdict() for one in verdict.violations],
        "problems": verdict.problems,
        "growth": verdict.growth,
        "missing": verdict.missing,
        "samples": verdict.samples,
        "smallest": verdict.smallest,
    }


def _page(verdict: Verdict) -> list[RenderableType]:
    lines: list[RenderableType] = [fields_table({**verdict.counts})]
    for one in verdict.violations[:10]:
        lines.append(sentence(one.law, one.text))
    lines += [escaped(json.dumps(event)) for event in verdict.smallest]
    lines += [escaped(problem) for problem in (*verdict.problems, *verdict.growth, *verdict.missing)]
    lines.append(Text(f"seed {verdict.seed}: {verdict.word}", style=STYLES.get(verdict.word, "bold red")))
    return lines
