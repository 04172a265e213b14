"""tests/README.md names every folder of tests."""

from __future__ import annotations

from tests.architecture.sources import ROOT


def test_every_folder_of_tests_is_in_the_readme() -> None:
    tests = ROOT / "tests"
    page = (tests / "README.md").read_text(encoding="utf-8")
    folders = {path.parent.relative_to(tests).as_posix() for path in tests.rglob("test_*.py")}
    missing = sorted(name for name in folders if not any(f"`{place}/`" in page for place in _places(name)))
    assert missing == []


def _places(name: str) -> list[str]:
    """The folder, or its parent."""
    return [name, name.rpartition("/")[0]]
