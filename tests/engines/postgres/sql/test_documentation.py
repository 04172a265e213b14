"""The examples of docs/sql.md, run by psql in one session: each prints what the page shows."""

from __future__ import annotations

import re
import subprocess

from tests.architecture.sources import ROOT
from tests.engines.postgres.server import binaries

PAGE = ROOT / "docs" / "sql.md"
BLOCK = re.compile(r"^```sql\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
BORDER = "~~~ next block ~~~"


def test_every_example_prints_what_the_page_shows(postgres_url: str) -> None:
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    assert len(blocks) > 10
    printed = run(postgres_url, [statements for statements, _ in blocks])
    wrong = []
    for (statements, shown), output in zip(blocks, printed, strict=True):
        if shown and not _is_shown(output, shown):
            wrong.append(f"{statements}prints\n{output}and not\n{shown}")
        elif not shown and "ERROR" in output:
            wrong.append(f"{statements}fails:\n{output}")
    assert not wrong, "\n".join(wrong)


def test_the_runner_sees_output_and_errors_in_their_order(postgres_url: str) -> None:
    assert run(postgres_url, ["select 1 as a;\nselect 1/0;\nselect 2 as b;\n", "select 3 as c;\n"]) == [
        " a \n---\n 1\n(1 row)\n\nERROR:  division by zero\n b \n---\n 2\n(1 row)\n\n",
        " c \n---\n 3\n(1 row)\n\n",
    ]


def run(url: str, blocks: list[str]) -> list[str]:
    """What psql prints for each block. All goes through one pipe; what waits in psql is pushed out by each \\echo."""
    script = f"\\echo {BORDER}\n".join(blocks)
    done = subprocess.run(
        [str(binaries() / "psql"), "-X", "-q", "-P", "pager=off", "-v", "SHOW_CONTEXT=never", url],
        input=script,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={"PGCLIENTENCODING": "UTF8", "PGTZ": "UTC", "LC_ALL": "C.UTF-8"},
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.split(f"{BORDER}\n")


def _is_shown(output: str, shown: str) -> bool:
    """Line by line, where `…` on the page is what differs each time. Warnings of dead letters are not shown."""
    printed, expected = _lines(output), _lines(shown)
    return len(printed) == len(expected) and all(
        re.fullmatch(re.escape(wanted).replace("…", ".*"), line) for line, wanted in zip(printed, expected, strict=True)
    )


def _lines(text: str) -> list[str]:
    """Without what an editor removes: blanks at the end, empty lines."""
    return [line.rstrip() for line in text.splitlines() if line.strip() and not line.startswith("WARNING:")]
