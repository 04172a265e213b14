"""SQL is in .sql files, in named and described blocks, each of them used."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.engines.mariadb import dialect as mariadb
from penstock.engines.positional.dialect import engine_statements, in_dialect, render
from penstock.engines.sqlite import dialect as sqlite
from penstock.engines.statements import Statements
from tests.architecture.sources import PACKAGE, python_files, shown, sql_files, tree

STATEMENT = re.compile(
    r"""\s*( select\s.*\sfrom\s | select\s+\S+\( | insert\s(or\s\w+\s)?into\s | replace\sinto\s | update\s\S+\sset\s
    | delete\sfrom\s | (create|drop|alter)\s(temp\s|unique\s|virtual\s)?(table|index|view|trigger)\s | pragma\s+\w
    | with\s(recursive\s)?\w+(\s*\(.*?\))?\sas\s | begin(\s(immediate|exclusive|deferred))?\s*;?\s*$
    | (commit|rollback)\s*;?\s*$ | (savepoint|release)\s+\w | vacuum\b | attach\s )""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
# Texts in Python that look like SQL, with the reason.
ALLOWED: dict[str, str] = {}
# It calls the SQL functions as a user's program does, and keeps no statements of its own.
USERS_SIDE = PACKAGE / "chaos"
# Files of functions and views, loaded by `migrate` in the order of load_order.txt.
SCHEMA_FOLDERS = {"functions", "compat"}
MAX_FUNCTION_LINES = 120
NAME = re.compile(r"^--\s*name:\s*(\S+)\s*$", re.MULTILINE)


def test_no_statement_stands_in_python() -> None:
    wrong = [
        f"{shown(path)}:{line}: {text[:60]!r}"
        for path in python_files("src")
        for line, text in _strings(path)
        if _is_statement(text) and text not in ALLOWED and not path.is_relative_to(USERS_SIDE)
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


def test_a_statement_without_a_name_calls_a_function_that_is_described_and_is_used_by_its_name() -> None:
    functions = set(
        re.findall(
            r"\n--[^\n]*\ncreate or replace function penstock\.(\w+)",
            "\n".join(path.read_text(encoding="utf-8") for path in sql_files() if SCHEMA_FOLDERS & set(path.parts)),
        )
    )
    code = "\n".join(path.read_text(encoding="utf-8") for path in python_files("src"))
    called = 0
    for path in _query_files():
        lines = [line for line in _before_blocks(path).splitlines() if line and not line.startswith("--")]
        statements = "\n".join(lines).split(";")
        assert statements.pop() == "", f"{shown(path)} has a statement without an end"
        for statement in statements:
            call = re.fullmatch(r"\s*select (?:\* from )?penstock\.(\w+)\([^;]*\)", statement)
            assert call, f"{shown(path)}: {statement} is more than a call, so it needs a name"
            assert call.group(1) in functions, f"{shown(path)}: {call.group(1)} has no description where it is made"
            assert f".{call.group(1)}" in code, f"{shown(path)}: {call.group(1)} is not used"
            called += 1
    assert called > 50


RUNS = {"run", "run_many", "rows", "row", "value", "changes", "stream"}


OVER_POSITIONS = {"sqlite": sqlite.RULES, "mariadb": mariadb.RULES}


@pytest.mark.parametrize("engine", OVER_POSITIONS)
def test_an_engine_over_positions_has_every_statement_that_the_queue_runs(engine: str) -> None:
    known = engine_statements(f"penstock.engines.{engine}", OVER_POSITIONS[engine]).blocks
    named = {
        argument.value
        for path in python_files("src/penstock/engines/positional")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in RUNS
        for argument in node.args[:1]
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    }
    assert len(named) > 200
    assert not named - set(known)


def test_no_statement_is_written_twice() -> None:
    """Neither in an engine's folder and in the shared one, nor in the folders of two engines."""
    own = {engine: Statements(f"penstock.engines.{engine}", "statements").blocks for engine in OVER_POSITIONS}
    shared = {engine: in_dialect(rules) for engine, rules in OVER_POSITIONS.items()}
    for engine, blocks in own.items():
        assert not [name for name in blocks if _words(blocks[name]) == _words(shared[engine].get(name, ""))]
    for name in set(own["sqlite"]) & set(own["mariadb"]):
        texts = own["sqlite"][name], own["mariadb"][name]
        assert _words(render(texts[0], mariadb.RULES)) != _words(render(texts[1], mariadb.RULES)), name


def _words(text: str) -> list[str]:
    return text.split()


@pytest.mark.parametrize("engine", OVER_POSITIONS)
def test_a_shared_statement_is_run_as_it_is_by_two_engines(engine: str) -> None:
    own = Statements(f"penstock.engines.{engine}", "statements").blocks
    shared = Statements("penstock.engines.positional", "statements").blocks
    assert len(shared) > 250
    assert not set(own) & set(shared), "with three engines, one of them may have its own text"


@pytest.mark.parametrize("engine", OVER_POSITIONS)
def test_each_rule_of_a_dialect_changes_a_statement_and_no_text_in_quotes(engine: str) -> None:
    shared = Statements("penstock.engines.positional", "statements").blocks
    for rule in OVER_POSITIONS[engine]:
        changed = [text for text in shared.values() if render(text, [rule]) != text]
        assert changed, f"{rule} changes nothing"
    rendered = in_dialect(OVER_POSITIONS[engine])
    for name, text in shared.items():
        assert re.findall("'[^']*'", rendered[name]) == re.findall("'[^']*'", text), name


def test_a_statement_of_the_queue_stands_in_the_file_of_a_module_that_runs_it() -> None:
    queue = PACKAGE / "engines" / "positional"
    folders = [queue / "statements", *(PACKAGE / "engines" / engine / "statements" for engine in OVER_POSITIONS)]
    own = {"connection", "doctor", "store", "arrivals", "cluster", "short_calls"}
    wrong = []
    for path in sorted(path for folder in folders for path in folder.glob("*.sql")):
        code = "" if path.stem in own else (queue / f"{path.stem}.py").read_text(encoding="utf-8")
        for name, _ in _blocks(path):
            is_run = f'"{name}"' in code or _is_built(name, code) or f".{name}(" in code
            if path.stem not in own and not is_run:
                wrong.append(f"{shown(path)}: {name}")
    assert not wrong, "\n".join(wrong)


def _is_built(name: str, code: str) -> bool:
    """A family of blocks is named by a prefix and a state: f"count_{state}"."""
    return any(f'f"{name[:end]}{{' in code for end in range(4, len(name)))


def _query_files() -> list[Path]:
    return [path for path in sql_files() if not {"migrations", *SCHEMA_FOLDERS} & set(path.parts)]


def _before_blocks(path: Path) -> str:
    return path.read_text(encoding="utf-8").partition("-- name:")[0]


def _blocks(path: Path) -> Iterator[tuple[str, str]]:
    text = path.read_text(encoding="utf-8")
    marks = list(NAME.finditer(text))
    assert marks, f"{shown(path)} has no named block"
    for mark, following in zip(marks, [*marks[1:], None], strict=True):
        yield mark.group(1), text[mark.end() : following.start() if following else len(text)]


def test_every_file_of_functions_is_in_the_load_order_once() -> None:
    folder = PACKAGE / "engines" / "postgres"
    listed = (folder / "load_order.txt").read_text(encoding="utf-8").split()
    files = [path for path in sql_files() if SCHEMA_FOLDERS & set(path.parts)]
    assert sorted(listed) == sorted(str(path.relative_to(folder).with_suffix("")) for path in files)


def test_no_sql_function_is_longer_than_the_limit() -> None:
    made = re.compile(
        r"^create (?:or replace )?(?:function|procedure) (\S+?)\(.*?(\$\w*\$).*?\2", re.MULTILINE | re.DOTALL
    )
    lengths = {
        f"{shown(path)}: {function.group(1)}": function.group().count("\n") + 1
        for path in sql_files()
        if SCHEMA_FOLDERS & set(path.parts)
        for function in made.finditer(path.read_text(encoding="utf-8"))
    }
    assert len(lengths) > 300, "the functions were not found"
    assert not {name: lines for name, lines in lengths.items() if lines > MAX_FUNCTION_LINES}


def test_audit_entries_have_one_writer() -> None:
    """`ack_whole` writes its own in the same statement, because a call would make every ack slower."""
    made = re.compile(r"^create or replace function penstock\.(\w+)", re.MULTILINE)
    writers = [
        made.findall(text, 0, use.start())[-1]
        for path in sql_files()
        if SCHEMA_FOLDERS & set(path.parts)
        for text in [path.read_text(encoding="utf-8")]
        for use in re.finditer("insert into penstock.audit ", text)
    ]
    assert sorted(writers) == ["_record_audit", "ack_whole"]


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
    """Public functions and views of the schema; names that begin with an underscore are internal."""
    made = re.compile(r"(\S[^\n]*)?\ncreate or replace (?:function|view) penstock\.([a-z]\w*)")
    found = [
        (shown(path), name, before)
        for path in sql_files()
        if SCHEMA_FOLDERS & set(path.parts)
        for before, name in made.findall(path.read_text(encoding="utf-8"))
    ]
    assert len(found) > 50, "the functions were not found"
    assert not [f"{path}: {name}" for path, name, before in found if not before.startswith("--")]


# Functions that may read the current snapshot, in which the calling transaction counts as ended. A stored cursor or
# mark with such a snapshot would skip what the transaction writes later: those use penstock._current_snapshot.
SNAPSHOTS = {
    "_current_snapshot": "adds the transaction itself",
    "decide": "compares transaction numbers of others",
    "_decided_position": "compares transaction numbers of others",
    "_check_mark": "compares transaction numbers of others",
    "_count_ended": "counts up to now and keeps nothing",
    "_first_unfinished_position": "looks up to now and keeps nothing",
    "_trim_to": "compares transaction numbers of others",
    "_delete_lane": "keeps only a transaction number, before which none is open",
    "_sweep_deleted": "compares transaction numbers of others",
    "_first_streamed_position": "looks up to now and keeps nothing",
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
                wrong.append(f"{shown(path)}: {name} wants penstock._current_snapshot(), or a reason in SNAPSHOTS")
    assert not wrong, "\n".join(wrong)


def test_whoever_takes_a_position_has_said_so_before() -> None:
    """Readers by position check for open senders."""
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
