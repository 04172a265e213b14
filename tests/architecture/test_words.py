"""Examples in README and guide run as shown, and the glossary is complete."""

from __future__ import annotations

import doctest
import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT

README = ROOT / "README.md"
GUIDE = ROOT / "docs" / "guide.md"
GLOSSARY = ROOT / "docs" / "glossary.md"
WORDS = [
    *("store", "engine", "queue", "message", "send", "receive", "delivery", "lease", "extend", "settle", "ack", "nak"),
    *("reject", "reschedule", "attempt", "outcome", "dead letter", "redrive", "archive", "audit", "group", "batch"),
    *("address", "consumer", "worker", "handler", "slot", "schedule", "sweep", "shard"),
]
BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", [README, GUIDE], ids=lambda page: page.name)
def test_the_python_sessions_of_a_page_run_as_shown(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one session, one after the other."""
    monkeypatch.chdir(tmp_path)
    run_session("\n".join(_sessions(page.read_text(encoding="utf-8"))))


def test_the_readme_begins_with_a_session() -> None:
    text = README.read_text(encoding="utf-8")
    first = _sessions(text)[0]
    assert text.index(first) < 4000, "the first Python block of README.md is not on its first screen"
    assert "penstock" in first


def test_the_first_program_of_the_readme_runs_as_it_stands(tmp_path: Path) -> None:
    program = next(body for language, body in BLOCK.findall(README.read_text(encoding="utf-8")) if language == "python")
    assert len(program.splitlines()) <= 10
    (tmp_path / "program.py").write_text(program, encoding="utf-8")
    command = [sys.executable, "-W", "error", "program.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr, done.returncode) == ("mail to ada@example.com\n", "", 0)


def test_the_first_screen_of_the_readme_says_how_to_begin() -> None:
    screen = "\n".join(README.read_text(encoding="utf-8").splitlines()[:36])
    places = [
        screen.index(words) for words in ("A message queue", "pip install penstock-queue", "Worker(", "make demo")
    ]
    assert places == sorted(places)
    assert "make test" in screen


def _sessions(text: str) -> list[str]:
    return [body for language, body in BLOCK.findall(text) if language == "python" and ">>>" in body]


def run_session(block: str) -> None:
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    example = doctest.DocTestParser().get_doctest(block, {"__name__": "__main__"}, "page", None, 0)
    assert example.examples, "the session has no examples"
    shown = io.StringIO()
    result = doctest.DocTestRunner(optionflags=flags, verbose=False).run(example, out=shown.write)
    assert result.failed == 0, shown.getvalue()


def test_the_runner_can_fail() -> None:
    run_session(">>> 1 + 1\n2\n")
    with pytest.raises(AssertionError):
        run_session(">>> 1 + 1\n3\n")


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


def test_every_decision_is_in_the_index() -> None:
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text(encoding="utf-8")
    missing = [path.name for path in sorted(folder.glob("[0-9]*.md")) if f"({path.name})" not in index]
    assert not missing, f"docs/decisions/README.md does not list {missing}"
