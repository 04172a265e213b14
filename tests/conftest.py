"""What all tests share: how Hypothesis runs, the seed, and the line that says which engines were proven."""

from __future__ import annotations

import signal
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import settings

from tests import certificates, java, seeds, temporary_files
from tests.conformance.clients import CLIENTS
from tests.conformance.engines import EVERY_ENGINE, capabilities

# The machine may be busy, so an example has no time limit of its own; the run as a whole has (pytest-timeout).
settings.register_profile("penstock", deadline=None, max_examples=200, derandomize=not seeds.is_random())
settings.load_profile("penstock")

# Groups of tests that one process runs, the longest first.
LONGEST = ("spark", "cluster", "dashboard")

certificates.set_up()
java.set_up()
temporary_files.set_up()
# A run in the background of a shell ignores interrupts, and so would every program that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def seed() -> int:
    return seeds.choose_seed()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What one process must run as a whole begins first, and of that what takes longest; then what is slow: begun last,
    it would end long after all the others."""
    if config.getoption("loadgroup", False):
        for item in items:
            _show_group(item)
    items.sort(key=_place)


def _place(item: pytest.Item) -> tuple[int, bool]:
    mark = item.get_closest_marker("xdist_group")
    places = {name: place for place, name in enumerate(LONGEST)}
    return len(LONGEST) + 1 if mark is None else places.get(mark.args[0], len(LONGEST)), "slow" not in item.keywords


def _show_group(item: pytest.Item) -> None:
    """xdist sends tests to workers by the group at the end of their names, and puts it where pytest 9.2 no longer
    looks: without this every worker would start a Spark and a browser of its own."""
    groups = sorted({mark.args[0] for mark in item.iter_markers("xdist_group")})
    ending = f"@{'_'.join(groups)}"
    structured: Any = getattr(item, "_id", None)
    if groups and structured is not None and not item.nodeid.endswith(ending):
        changing: Any = item
        changing._id = type(structured).parse(item.nodeid + ending)


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """xdist sends reports as UTF-8 and ends the whole run when it cannot: a captured log may hold lone surrogates."""
    report = yield
    return _escape_surrogates(report)


def _escape_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {key: _escape_surrogates(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_escape_surrogates(item) for item in value)
    return value


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Printed even by a quiet run: a capability that an engine lacks must be seen, not hidden in a skip."""
    for engine in EVERY_ENGINE:
        found = capabilities(engine)
        flags = f"facets {', '.join(sorted(found.facets))}; receives_lightly={found.receives_lightly}"
        flags += f", rolls_back={found.rolls_back}"
        terminalreporter.write_line(f"engine {engine.name} through {' and '.join(CLIENTS)}: {flags}")
