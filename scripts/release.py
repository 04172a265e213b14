"""Build a release, check it, and install it into an empty environment.

    python scripts/release.py          builds dist/, checks it, runs the smoke test and prints the command that tags it

The version is that of src/penstock/__init__.py; CHANGELOG.md must have a dated section for it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

from packaging.metadata import Metadata

import penstock

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"
ENVIRONMENT = ROOT / "build" / "release"
VERSION = penstock.__version__
EXPECTED = "mail to ada@example.com"


def main() -> int:
    check_changelog()
    wheel, source = build()
    check_metadata(wheel)
    check_files(wheel, source)
    for distribution in (wheel, source):
        smoke_test(distribution)
        print(f"{distribution.name}: installed into an empty environment and run")
    if status := run("git", "status", "--porcelain", cwd=ROOT):
        print(f"the tree has uncommitted changes; commit them before you tag:\n{status}", file=sys.stderr)
        return 1
    print(f"ready: git tag -a v{VERSION} -m 'Penstock {VERSION}'")
    return 0


def check_changelog() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## \[(\d[^\]]*)\] - \d{4}-\d\d-\d\d$", text, re.MULTILINE)
    if newest is None or newest.group(1) != VERSION:
        sys.exit(f"CHANGELOG.md has no dated section [{VERSION}] at its top")


def build() -> tuple[Path, Path]:
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "hatchling", "build", cwd=ROOT)
    (wheel,), (source,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    return wheel, source


def check_metadata(wheel: Path) -> None:
    """The metadata is valid, and the pages that the registry shows are in it."""
    with zipfile.ZipFile(wheel) as archive:
        (path,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = Metadata.from_email(archive.read(path), validate=True)
    assert (metadata.name, str(metadata.version)) == ("penstock-queue", VERSION), (metadata.name, metadata.version)
    assert metadata.description, "the README is not the description"
    assert metadata.license_files, "the licence is missing"


def check_files(wheel: Path, source: Path) -> None:
    """Every tracked file of the packages is in the wheel, and every tracked file in the source distribution."""
    tracked = run("git", "ls-files", cwd=ROOT).splitlines()
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    missing = [name for name in tracked if name.startswith("src/") and name.removeprefix("src/") not in packed]
    with tarfile.open(source) as tar:
        sources = {name.partition("/")[2] for name in tar.getnames()}
    missing += [name for name in tracked if name.startswith("src/") and name not in sources]
    assert not missing, missing


def smoke_test(distribution: Path) -> None:
    """Install it with its dependencies, and run the command and the first program of the README."""
    venv.create(ENVIRONMENT, clear=True, with_pip=True)
    python = ENVIRONMENT / "bin" / "python"
    run(python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", distribution)
    assert VERSION in run(ENVIRONMENT / "bin" / "penstock", "--version")
    folder = ENVIRONMENT / "smoke"
    folder.mkdir()
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    program = re.search(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert program is not None
    (folder / "program.py").write_text(program.group(1), encoding="utf-8")
    assert run(python, "program.py", cwd=folder) == EXPECTED
    run(ENVIRONMENT / "bin" / "penstock", "--url", "sqlite:///app.db", "doctor", cwd=folder)


def run(*command: str | Path, cwd: Path | None = None) -> str:
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
