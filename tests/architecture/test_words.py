"""What the README shows happens, and the glossary has every word of the design."""

from __future__ import annotations

import contextlib
import doctest
import io
import re
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT

README = ROOT / "README.md"
GLOSSARY = ROOT / "docs" / "glossary.md"
WORDS = [
    *("store", "engine", "queue", "message", "send", "receive", "delivery", "lease", "extend", "settle", "ack", "nak"),
    *("reject", "reschedule", "attempt", "outcome", "dead letter", "redrive", "archive", "audit", "group", "batch"),
    *("address", "consumer", "worker", "handler", "slot", "schedule", "sweep", "shard"),
]
BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_the_first_python_session_of_the_readme_runs_as_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `>>>` as a doctest; else as a program whose prints are the comments behind them."""
    monkeypatch.chdir(tmp_path)
    block = _first_python_block(README.read_text(encoding="utf-8"))
    if ">>>" in block:
        run_session(block)
    else:
        run_program(block)


def _first_python_block(text: str) -> str:
    blocks = [body for language, body in BLOCK.findall(text) if language in ("python", "pycon", "py")]
    assert blocks, "README.md has no Python block"
    first: str = blocks[0]
    assert text.index(first) < 4000, "the first Python block of README.md is not on its first screen"
    assert "penstock" in first
    return first


def run_session(block: str) -> None:
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    example = doctest.DocTestParser().get_doctest(block, {}, "README", str(README), 0)
    assert example.examples, "the session has no examples"
    shown = io.StringIO()
    result = doctest.DocTestRunner(optionflags=flags, verbose=False).run(example, out=shown.write)
    assert result.failed == 0, shown.getvalue()


def run_program(block: str) -> None:
    expected = re.findall(r"^\s*print\(.*\)\s*#\s*(.+?)\s*$", block, re.MULTILINE)
    assert expected, "the program shows nothing that it prints (`print(…)  # what it prints`)"
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(block, {"__name__": "__main__"})
    assert printed.getvalue().splitlines() == expected


def test_the_readme_runners_can_fail() -> None:
    run_session(">>> 1 + 1\n2\n")
    run_program('print("a")  # a\n')
    with pytest.raises(AssertionError):
        run_session(">>> 1 + 1\n3\n")
    with pytest.raises(AssertionError):
        run_program('print("a")  # b\n')


def test_the_glossary_has_every_word() -> None:
    assert GLOSSARY.exists(), "docs/glossary.md is missing"
    text = GLOSSARY.read_text(encoding="utf-8").lower()
    missing = [word for word in WORDS if not re.search(rf"\b{re.escape(word)}\b", text)]
    assert not missing


def test_the_pages_that_are_linked_exist() -> None:
    pages = [README, *sorted((ROOT / "docs").rglob("*.md"))]
    broken = []
    for page in pages:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if "://" not in target and not (page.parent / target).exists():
                broken.append(f"{page.name} links to {target}")
    assert not broken, "\n".join(broken)
