"""SQL lives in .sql files, in named blocks, each with a sentence that says what it does, and each used."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.sources import python_files, shown, sql_files, tree

STATEMENT = re.compile(
    r"""\s*( select\s.*\sfrom\s | select\s+\S+\( | insert\s(or\s\w+\s)?into\s | replace\sinto\s | update\s\S+\sset\s
    | delete\sfrom\s | (create|drop|alter)\s(temp\s|unique\s|virtual\s)?(table|index|view|trigger)\s | pragma\s+\w
    | with\s(recursive\s)?\w+(\s*\(.*?\))?\sas\s | begin(\s(immediate|exclusive|deferred))?\s*;?\s*$
    | (commit|rollback)\s*;?\s*$ | (savepoint|release)\s+\w | vacuum\b | attach\s )""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
# What may stand in Python: the start of a statement that is not one, with the reason.
ALLOWED: dict[str, str] = {}
NAME = re.compile(r"^--\s*name:\s*(\S+)\s*$", re.MULTILINE)


def test_no_statement_stands_in_python() -> None:
    wrong = [
        f"{shown(path)}:{line}: {text[:60]!r}"
        for path in python_files("src")
        for line, text in _strings(path)
        if _is_statement(text) and text not in ALLOWED
    ]
    assert not wrong, "\n".join(wrong)


def _is_statement(text: str) -> bool:
    return STATEMENT.match(text) is not None


def _strings(path: Path) -> Iterator[tuple[int, str]]:
    module = tree(path)
    docstrings = {id(node.value) for node in ast.walk(module) if isinstance(node, ast.Expr)}
    for node in ast.walk(module):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, node.value


def test_the_search_for_statements_finds_them() -> None:
    for text in ("select 1 from x", "begin immediate", "INSERT INTO t VALUES (1)", "pragma user_version = 3"):
        assert _is_statement(text), text
    for text in ("with t as (values (1))", "update t set x = 1", "select count(*)", "create table t (x)"):
        assert _is_statement(text), text
    for text in ("Update the cursor.", "with a delay, or into a batch", "delete", "select a queue"):
        assert not _is_statement(text), text


def test_every_block_has_a_name_and_a_sentence() -> None:
    wrong = []
    for path in _query_files():
        for name, block in _blocks(path):
            first = block.strip().splitlines()[:1]
            if not first or not re.match(r"--\s+\S.*", first[0]):
                wrong.append(f"{shown(path)}: {name} does not say what it does")
    assert not wrong, "\n".join(wrong)


def test_every_block_is_used_and_its_name_is_its_own() -> None:
    names = [name for path in _query_files() for name, _ in _blocks(path)]
    assert len(names) > 10, "the blocks were not found"
    for path in _query_files():
        here = [name for name, _ in _blocks(path)]
        assert len(here) == len(set(here)), f"{shown(path)} has a name twice"
    code = "\n".join(path.read_text(encoding="utf-8") for path in python_files("src"))
    words = set(re.findall(r"\w+", code))
    unused = [name for name in names if name not in words and not _is_built(name, code)]
    assert not unused


def _is_built(name: str, code: str) -> bool:
    """A family of blocks is named by a prefix and a state: f"count_{state}"."""
    return any(f'f"{name[:end]}{{' in code for end in range(4, len(name)))


def _query_files() -> list[Path]:
    return [path for path in sql_files() if not {"migrations", "functions"} & set(path.parts)]


def _blocks(path: Path) -> Iterator[tuple[str, str]]:
    text = path.read_text(encoding="utf-8")
    marks = list(NAME.finditer(text))
    assert marks, f"{shown(path)} has no named block"
    for mark, following in zip(marks, [*marks[1:], None], strict=True):
        yield mark.group(1), text[mark.end() : following.start() if following else len(text)]


def test_migrations_are_numbered_without_gaps_and_say_what_they_add() -> None:
    folders: dict[Path, list[str]] = {}
    for path in sql_files():
        if "migrations" in path.parts:
            folders.setdefault(path.parent, []).append(path.name)
    assert len(folders) > 1
    for names in folders.values():
        assert [int(name.split("_")[0]) for name in names] == list(range(1, len(names) + 1))
        assert all(re.fullmatch(r"\d{3}_[a-z_]+\.sql", name) for name in names)


def test_what_the_database_offers_has_a_sentence() -> None:
    """Functions and views of the schema that people may call; those that begin with an underscore are inner parts."""
    made = re.compile(r"(\S[^\n]*)?\ncreate or replace (?:function|view) penstock\.([a-z]\w*)")
    found = [
        (shown(path), name, before)
        for path in sql_files()
        if "functions" in path.parts
        for before, name in made.findall(path.read_text(encoding="utf-8"))
    ]
    assert len(found) > 50, "the functions were not found"
    assert not [f"{path}: {name}" for path, name, before in found if not before.startswith("--")]


# Who may ask PostgreSQL for the snapshot of now, in which the asking transaction counts as ended. A cursor or mark that
# keeps such a snapshot passes over what the transaction writes later: those ask penstock._snapshot.
SNAPSHOTS = {
    "_snapshot": "adds the transaction itself",
    "_decided": "compares transaction numbers of others",
    "_long_decided": "compares transaction numbers of others",
    "_check_mark": "compares transaction numbers of others",
    "_count_ended": "counts up to now and keeps nothing",
    "_unfinished": "looks up to now and keeps nothing",
    "_trim_to": "compares transaction numbers of others",
    "_delete_lane": "keeps only a transaction number, before which none is open",
    "_first_followed": "looks up to now and keeps nothing",
}


def test_a_snapshot_that_is_kept_has_its_own_transaction_in_it() -> None:
    made = re.compile(r"^create or replace (?:function|view|procedure) (?:penstock\.)?(\w+)", re.MULTILINE)
    wrong = []
    for path in sql_files():
        text = path.read_text(encoding="utf-8")
        if "migrations" in path.parts:
            continue
        for use in re.finditer("pg_current_snapshot|txid_current_snapshot", text):
            names = made.findall(text, 0, use.start())
            if not names or names[-1] not in SNAPSHOTS:
                name = names[-1] if names else use.group()
                wrong.append(f"{shown(path)}: {name} wants penstock._snapshot(), or a reason in SNAPSHOTS")
    assert not wrong, "\n".join(wrong)


def test_whoever_takes_a_position_has_said_so_before() -> None:
    """Readers that follow positions look at who is sending."""
    made = re.compile(r"^create or replace function ", re.MULTILINE)
    taking = [
        (path, function)
        for path in sql_files()
        for function in made.split(path.read_text(encoding="utf-8"))
        if "nextval('penstock.position')" in function
    ]
    assert len(taking) >= 5
    wrong = [
        f"{shown(path)}: {function.partition('(')[0]}"
        for path, function in taking
        if "penstock._begin_sending(" not in function.partition("nextval('penstock.position')")[0]
    ]
    assert not wrong, "\n".join(wrong)
