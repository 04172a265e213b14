"""The published distribution: its name, and texts that say how to install it."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import Any

from scripts import release
from tests.architecture.sources import ROOT

NAME = "penstock-queue"
INSTALLED = re.compile(r"pip install '?([\w.-]+)(?:\[([\w,]+)\])?")
# The name `penstock` belongs to another project on the package registry.
OTHERS_NAME = re.compile(r"\bpenstock\[(?:all|embedded|metrics|postgres|redis|server|spark|tracing)")
TEXTS = [
    path
    for folder, pattern in (("src", "*.py"), ("src", "*.html"), ("docs", "*.md"), ("examples", "*"), (".", "*.md"))
    for path in sorted((ROOT / folder).glob(pattern) if folder == "." else (ROOT / folder).rglob(pattern))
    if path.is_file() and "decisions" not in path.parts
]


def _project() -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project


def test_the_wheel_has_the_name_the_packages_and_the_command(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir"]
    subprocess.run([*command, str(tmp_path), str(ROOT)], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("penstock_queue-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        described = _text(archive, names, "METADATA")
        assert Parser().parsestr(described)["Name"] == NAME
        assert "penstock = penstock.cli:main" in _text(archive, names, "entry_points.txt")
    assert {name.partition("/")[0] for name in names} >= {"penstock", "pyspark_penstock"}


def _text(archive: zipfile.ZipFile, names: list[str], file: str) -> str:
    return archive.read(next(name for name in names if name.endswith(f".dist-info/{file}"))).decode()


def test_the_version_of_the_package_has_a_dated_section_in_the_changelog() -> None:
    release.check_changelog()


def test_every_text_installs_the_distribution_by_its_name() -> None:
    extras = set(_project()["optional-dependencies"])
    hints = 0
    for path in TEXTS:
        text = path.read_text(encoding="utf-8", errors="ignore")
        assert not OTHERS_NAME.search(text), path
        for name, several in INSTALLED.findall(text):
            if name.startswith("penstock"):
                hints += 1
                assert name == NAME, path
                assert set(several.split(",")) - {""} <= extras, path
    assert hints > 10


def test_the_extras_of_the_distribution_name_itself() -> None:
    for several in _project()["optional-dependencies"].values():
        assert not [one for one in several if re.match(r"penstock\b(?!-queue)", one)]
