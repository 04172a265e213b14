"""The engine contract stays small: few methods per protocol, each of them called, each engine with all its facets."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import msgspec
import pytest

import penstock
from penstock.engines import contract
from penstock.engines.contract import EVERY_FACET, Capabilities
from tests.architecture.sources import PACKAGE, python_files, tree
from tests.conformance.engines import EVERY_ENGINE, EngineRow

CONTRACT = PACKAGE / "engines" / "contract"
MOST_QUEUE_METHODS = 40
MOST_FACET_METHODS = 15


def test_the_queue_has_at_most_40_methods() -> None:
    assert 30 < len(_methods("queue")) <= MOST_QUEUE_METHODS


@pytest.mark.parametrize("facet", sorted(EVERY_FACET))
def test_a_facet_has_at_most_15_methods(facet: str) -> None:
    assert 0 < len(_methods(facet)) <= MOST_FACET_METHODS


def test_the_engine_is_the_queue_and_every_facet() -> None:
    parts = [_methods(facet) for facet in ("queue", *sorted(EVERY_FACET))]
    every = [name for part in parts for name in part]
    assert len(every) == len(set(every)), "a method belongs to two protocols"
    assert set(every) == {name for name in dir(contract.Engine) if not name.startswith("_")} - {"name", "capabilities"}


def test_every_method_is_called_by_the_package() -> None:
    """Calls inside engines do not count."""
    uncalled = [
        name
        for facet in ("queue", *sorted(EVERY_FACET))
        for name in _methods(facet)
        if name not in _called_attributes()
    ]
    assert not uncalled


def test_every_capability_is_read_by_the_package() -> None:
    code = "\n".join(path.read_text(encoding="utf-8") for path in _callers())
    unread = [
        field for field in msgspec.structs.asdict(Capabilities()) if not re.search(rf"capabilities\.{field}\b", code)
    ]
    assert not unread


@pytest.mark.parametrize("engine", EVERY_ENGINE, ids=lambda engine: engine.name)
def test_an_engine_has_every_method_of_its_facets(engine: EngineRow) -> None:
    with penstock.connect(engine.any_url) as store:
        found = store.engine
        facets = ("queue", *found.capabilities.facets)
        assert not [name for facet in facets for name in _methods(facet) if not hasattr(found, name)]


def _methods(facet: str) -> list[str]:
    (protocol,) = [node for node in tree(CONTRACT / f"{facet}.py").body if isinstance(node, ast.ClassDef)]
    return [node.name for node in protocol.body if isinstance(node, ast.FunctionDef)]


def _callers() -> list[Path]:
    """The sources outside the engines' own folders."""
    engines = PACKAGE / "engines"
    return [path for path in python_files("src") if not path.is_relative_to(engines) or path.parent == engines]


@cache
def _called_attributes() -> frozenset[str]:
    """Names called on an object that is an engine by its name: engine.send, self._engine.send, engine_at(url).send."""
    return frozenset(
        node.attr
        for path in _callers()
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Attribute) and "engine" in ast.unparse(node.value)
    )
