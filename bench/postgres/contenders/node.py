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
LONGEST_SECONDS = 300.0


def is_there() -> bool:
    return shutil.which("node") is not None and (FOLDER / "node_modules").is_dir()


def install() -> str | None:
    """Why they are left out, or None."""
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


def handlers(name: str, url: str, count: int) -> float:
    """Messages per second through handlers that do nothing."""
    return float(_answer(name, "handlers", url, count)["per_second"])


def latencies(name: str, url: str, seconds: float, per_second: int) -> list[float]:
    """Seconds from send to handler, in the order in which they came."""
    return [milliseconds / 1000 for milliseconds in _answer(name, "latency", url, seconds, per_second)]


def _answer(name: str, role: str, *words: object) -> Any:
    command = [*PROGRAM, name, role, *(str(word) for word in words)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=LONGEST_SECONDS)
    return json.loads(done.stdout.splitlines()[-1])


def no_session(url: str) -> Any:
    raise RuntimeError("a Node contender runs in processes of its own")
