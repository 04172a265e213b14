"""`python -m scripts.mutants [NAME ...]`: plant each fault, or those named, and run its tests.

Prints a line for each and exits with 1 when one survives, when a rule is stale, or when tests fail without any fault.
`--check` only looks whether every rule still fits the code.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from scripts.mutants import rules_clients, rules_mariadb, rules_positional, rules_postgres, rules_redis
from scripts.mutants.rule import Rule, StaleRule, find, read_sources

ROOT = Path(__file__).resolve().parents[2]
RULES = (
    *rules_positional.RULES, *rules_mariadb.RULES, *rules_postgres.RULES, *rules_redis.RULES, *rules_clients.RULES,
)  # fmt: skip
COPIED = ("src", "tests", "scripts", "pyproject.toml", "docs", "examples", "README.md", "requirements", "Makefile")
TIMEOUT_SECONDS = 400
# Of pytest: tests ran and some failed. Any other code says nothing about the fault.
FAILED = 1


def main(words: list[str]) -> int:
    names = [word for word in words if not word.startswith("--")]
    chosen = [rule for rule in RULES if not names or rule.name in names]
    if "--check" in words:
        return check(chosen)
    with tempfile.TemporaryDirectory(prefix="penstock-mutants-") as folder:
        tree = copied(Path(folder) / "tree")
        passing: dict[tuple[str, ...], bool] = {}
        survivors = [rule.name for rule in chosen if not is_caught(rule, tree, passing)]
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} planted faults are caught")
    for name in survivors:
        print(f"not caught: {name}")
    return 1 if survivors else 0


def check(chosen: list[Rule]) -> int:
    sources = read_sources(ROOT / "src")
    stale = 0
    for rule in chosen:
        try:
            find(rule, sources)
        except StaleRule as error:
            stale += 1
            print(error)
    print(f"{len(chosen) - stale} of {len(chosen)} rules fit the code")
    return 1 if stale else 0


def copied(tree: Path) -> Path:
    tree.mkdir()
    for name in COPIED:
        place = ROOT / name
        if place.is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "node_modules")
            shutil.copytree(place, tree / name, ignore=ignored)
        elif place.exists():
            shutil.copy2(place, tree / name)
    return tree


def is_caught(rule: Rule, tree: Path, passing: dict[tuple[str, ...], bool]) -> bool:
    """Whether the tests pass without the fault and fail with it."""
    began = time.monotonic()
    if rule.tests not in passing:
        passing[rule.tests] = run(tree, rule.tests) == 0
    if not passing[rule.tests]:
        told = "tests fail without it"
    else:
        told = planted(rule, tree)
    print(f"{told:24} {time.monotonic() - began:6.1f} s  {rule.name}", flush=True)
    return told == "caught"


def planted(rule: Rule, tree: Path) -> str:
    sources = read_sources(tree / "src")
    try:
        path, text = find(rule, sources)
    except StaleRule as error:
        return str(error)
    path.write_text(text, encoding="utf-8")
    try:
        code = run(tree, rule.tests)
    finally:
        path.write_text(sources[path], encoding="utf-8")
    return {FAILED: "caught", 0: "survived"}.get(code, f"pytest ended with {code}")


def run(tree: Path, tests: tuple[str, ...]) -> int:
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    words = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(
            words, cwd=tree, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            timeout=TIMEOUT_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return FAILED  # a fault that hangs the tests counts as found
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
