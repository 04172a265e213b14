"""The tests that the tables of `docs/seeds.md` name exist."""

from __future__ import annotations

import re

import pytest

from tests.architecture.sources import ROOT

PAGE = ROOT / "docs" / "seeds.md"
NAMED = re.compile(r"`(test_\w+)`(?: \((?:in )?`([\w/.]+\.py)`\))?")


@pytest.mark.parametrize(("section", "usual"), [("gq", "test_gq.py"), ("rsqueue", "test_rsqueue.py")])
def test_every_sentence_has_a_test_that_exists(section: str, usual: str) -> None:
    rows = [row.split("|") for row in _section(section).splitlines() if row.startswith("| ")][1:]
    assert len(rows) > 20
    missing = []
    for row in rows:
        said, call, tests = row[1:4]
        named = NAMED.findall(tests)
        assert named or "not part of Penstock" in call, f"no test for: {said}"
        # A named file also applies to the tests before it without one, unless they are in the default file.
        last = next((file for _, file in reversed(named) if file), "")
        for name, file in named:
            files = {file or usual, last or usual}
            if not any(f"def {name}(" in _text(one) for one in files):
                missing.append(f"{name} in {files}")
    assert missing == []


def _section(name: str) -> str:
    return PAGE.read_text(encoding="utf-8").split(f"\n## {name}\n", 1)[1].split("\n## ", 1)[0]


def _text(file: str) -> str:
    path = ROOT / file if "/" in file else ROOT / "tests" / "conformance" / file
    return path.read_text(encoding="utf-8")
