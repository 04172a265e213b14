"""mypy and pyright on programs of users: a misspelt or mistyped option is an error before the program runs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.user_code.programs import RIGHT, WRONG

ROOT = Path(__file__).resolve().parents[2]
PYRIGHT = Path(__file__).parent / "node" / "node_modules" / "pyright" / "index.js"
REFUSED = [number for number, line in enumerate(WRONG.splitlines(), 1) if line.endswith("# refused")]


@pytest.fixture
def program(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(request.param)
    return path


BOTH = pytest.mark.parametrize(
    ("program", "refused"), [(RIGHT, []), (WRONG, REFUSED)], ids=["right", "wrong"], indirect=["program"]
)


@BOTH
def test_mypy(program: Path, refused: list[int]) -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={ROOT}/.mypy_cache/user_code"]
    done = subprocess.run(
        [*command, str(program)], capture_output=True, text=True, env={**os.environ, "MYPYPATH": str(ROOT / "src")}
    )
    found = {int(number) for number in re.findall(r"program\.py:(\d+): error", done.stdout)}
    assert sorted(found) == refused, done.stdout + done.stderr


@BOTH
def test_pyright(program: Path, refused: list[int]) -> None:
    node = shutil.which("node")
    if node is None or not PYRIGHT.exists():
        pytest.skip("pyright is not installed: tests/user_code/install.sh")
    settings = {
        "include": [program.name],
        "extraPaths": [str(ROOT / "src")],
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
    }
    (program.parent / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [node, str(PYRIGHT), "--outputjson", "--pythonpath", sys.executable, "--project", str(program.parent)]
    done = subprocess.run(command, capture_output=True, text=True)
    told = json.loads(done.stdout)["generalDiagnostics"]
    found = {one["range"]["start"]["line"] + 1 for one in told if one["severity"] == "error"}
    assert sorted(found) == refused, done.stdout
