"""Planted faults (`make mutants`) fit the source: each replaces a text that occurs exactly once."""

from __future__ import annotations

import pytest

from scripts.mutants.__main__ import RULES
from scripts.mutants.rule import StaleRule, find, read_sources
from tests.architecture.sources import ROOT


def test_every_planted_fault_fits_the_source() -> None:
    sources = read_sources(ROOT / "src")
    assert RULES
    for rule in RULES:
        path, text = find(rule, sources)
        assert text != sources[path], rule.name


def test_a_fault_whose_text_is_gone_is_reported() -> None:
    with pytest.raises(StaleRule, match="occurs 0 times"):
        find(RULES[0], {})


def test_the_tests_of_every_planted_fault_exist() -> None:
    files = {test.partition("::")[0] for rule in RULES for test in rule.tests if test.startswith("tests/")}
    assert files
    assert not [name for name in sorted(files) if not (ROOT / name).exists()]
