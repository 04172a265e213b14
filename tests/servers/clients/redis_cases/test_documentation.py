"""The table of Redis' cases in docs/seeds.md and the tests of this folder say the same."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
DOCUMENTS = HERE.parents[3] / "docs"
KEPT, NOT_APPLICABLE = "kept", "not applicable"
DIFFERS = re.compile(r"\*\*differs \((\d+)\)\*\*").fullmatch
Row = tuple[str, str, str]


def section(name: str = "seeds.md", title: str = "Redis Streams") -> str:
    text = (DOCUMENTS / name).read_text(encoding="utf-8")
    return re.split(r"^## ", text.partition(f"\n## {title}\n")[2], flags=re.M)[0]


def rows() -> list[Row]:
    lines = [line for line in section().splitlines() if line.startswith("| ")]
    cells = [tuple(cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]) for line in lines]
    return [(name, verdict, rest) for name, verdict, rest in cells if not name.startswith("case of")]


def known_tests() -> dict[str, set[str]]:
    """By name, the parameters of each test of a case."""
    found: dict[str, set[str]] = {}
    for path in HERE.glob("test_*.py"):
        if path != Path(__file__):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                    found[node.name] = {argument.arg for argument in node.args.args}
    return found


def named(rest: str) -> list[str]:
    return re.findall(r"`(test_\w+)`", rest)


def test_every_row_has_a_verdict_and_a_test_or_a_reason() -> None:
    known = known_tests()
    wrong = []
    for name, verdict, rest in rows():
        if verdict == NOT_APPLICABLE:
            is_right = bool(rest) and not named(rest)
        elif verdict == KEPT:
            is_right = bool(named(rest)) and all("case" in known.get(test, ()) for test in named(rest))
        else:
            is_right = bool(DIFFERS(verdict)) and any("case" not in known.get(test, {"case"}) for test in named(rest))
            is_right = is_right and all(test in known for test in named(rest))
        if not is_right:
            wrong.append(f"{name}: {verdict}, {rest}")
    assert not wrong, "\n".join(wrong)


def test_every_test_runs_a_case() -> None:
    assert sorted(known_tests()) == sorted({test for _, _, rest in rows() for test in named(rest)})


def test_every_difference_has_its_reason() -> None:
    numbers = re.findall(r"^(\d+)\. ", section("redis.md", "What differs from Redis"), flags=re.M)
    assert numbers == [str(number) for number in range(1, len(numbers) + 1)]
    assert {found[1] for _, verdict, _ in rows() if (found := DIFFERS(verdict))} <= set(numbers)


def test_the_count_of_cases_is_right() -> None:
    count = Counter("differs" if DIFFERS(verdict) else verdict for _, verdict, _ in rows())
    told = f"Of {count.total()} cases {count[KEPT]} are kept, {count['differs']} differ and {count[NOT_APPLICABLE]} are"
    assert told in section()
