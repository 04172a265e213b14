"""Classes and functions: a class name has one meaning, and a function fits on a screen."""

from __future__ import annotations

import ast
from collections import Counter

from tests.architecture.sources import python_files, shown, tree

MAX_FUNCTION_LINES = 60


def test_every_class_name_occurs_once() -> None:
    names = Counter(
        node.name for path in python_files("src") for node in ast.walk(tree(path)) if isinstance(node, ast.ClassDef)
    )
    assert len(names) > 200
    assert not {name for name, count in names.items() if count > 1}


def test_no_function_is_longer_than_a_screen() -> None:
    long = [
        f"{shown(path)}: {node.name}"
        for path in python_files("src")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= MAX_FUNCTION_LINES
    ]
    assert not long
