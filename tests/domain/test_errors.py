"""The error tree: its drawing matches the classes, and errors survive pickling."""

from __future__ import annotations

import inspect
import pickle
import re

import pytest

import penstock
from penstock.domain import errors
from penstock.domain.errors import DuplicateAddress, MessageFailed, PenstockError

CLASSES = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, PenstockError)]


def drawn_parents() -> dict[str, str | None]:
    """Each class of the drawing, with its parent."""
    parents: dict[str, str | None] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"^    ([│ ]*)(?:[├└]── )?([A-Z]\w+)", line)
        if not found or not (line.strip() == "PenstockError" or "──" in line):
            continue
        depth = 0 if "──" not in line else len(found.group(1)) // 4 + 1
        path[depth:] = [found.group(2)]
        parents[found.group(2)] = path[depth - 1] if depth else None
    return parents


def real_parents() -> dict[str, str | None]:
    return {
        kind.__name__: next((base.__name__ for base in kind.__bases__ if issubclass(base, PenstockError)), None)
        for kind in CLASSES
    }


def test_the_drawn_tree_is_the_real_one() -> None:
    assert drawn_parents() == real_parents()


def test_every_class_says_what_it_means_in_one_sentence() -> None:
    for kind in CLASSES:
        assert kind.__doc__ is not None
        assert re.fullmatch(r"[A-Z][^\n]*\.", kind.__doc__.strip()), kind


def test_every_error_is_public() -> None:
    for kind in CLASSES:
        assert getattr(penstock, kind.__name__) is kind
        assert kind.__name__ in penstock.__all__


def example(kind: type[PenstockError]) -> PenstockError:
    if issubclass(kind, DuplicateAddress):
        return kind("address 'desk' is taken", "7d444840-9dc0-11d1-b245-5ffdce74fad2")
    if issubclass(kind, MessageFailed):
        return kind("message ended failed: why", "failed", "why")
    return kind("what went wrong")


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_error_survives_pickling_with_all_it_carries(kind: type[PenstockError]) -> None:
    error = example(kind)
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is kind
    assert str(back) == str(error)
    assert vars(back) == vars(error)


def test_errors_derive_from_the_matching_builtin_error() -> None:
    assert issubclass(errors.InvalidInput, ValueError)
    assert issubclass(errors.NotFound, LookupError)
    assert issubclass(errors.WaitTimeout, TimeoutError)
    assert issubclass(errors.MissingExtra, ImportError)
