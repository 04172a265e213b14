"""graphile-worker and pg-boss, each driven by `node/role.mjs`, which does what `role.py` does for the others."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent.parent / "node"
PROGRAM = ("node", str(FOLDER / "role.mjs"))
PACKAGES = ("graphile-worker", "pg-boss")


def is_there() -> bool:
    return shutil.which("node") is not None and (FOLDER / "node_modules").is_dir()


def install() -> str | None:
    """Why they cannot take part, or None when they can."""
    if shutil.which("npm") is None:
        return "Node.js and npm are not installed"
    if not is_there():
        done = subprocess.run(["npm", "ci", "--silent"], cwd=FOLDER, check=False)
        return None if done.returncode == 0 else f"npm ci ended with {done.returncode}"
    return None


def version(name: str) -> str:
    package = json.loads((FOLDER / "node_modules" / name / "package.json").read_text(encoding="utf-8"))
    return str(package["version"])


def preparing(name: str) -> Callable[[str], None]:
    def prepare(url: str) -> None:
        subprocess.run([*PROGRAM, name, "prepare", url], check=True)

    return prepare


def no_session(url: str) -> Any:
    raise RuntimeError("a Node contender runs in processes of its own")
