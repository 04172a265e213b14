"""A planted fault, and how it is put into a tree."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import NamedTuple

SUFFIXES = (".py", ".sql", ".lua")
# Rules that exist elsewhere in another dialect or language: a fault in them names the folder.
ALIKE = (("engines", "mariadb"), ("redis", "functions"))


class StaleRule(Exception):
    """The text of a rule does not occur exactly once: the code has changed, and the rule must follow."""


class Rule(NamedTuple):
    """Replace `find`, which occurs exactly once in `src`, wherever that is now. White space counts as equal; `<a>` is
    any word, the same in `replace`. `tests` are arguments of pytest that must fail then. `place` is a folder: the text
    is looked for below it alone."""

    name: str
    find: str
    replace: str
    tests: tuple[str, ...]
    place: str | None = None

    def concerns(self, path: Path) -> bool:
        if self.place is not None:
            return self.place in path.parts
        return not any(pair in ALIKE for pair in itertools.pairwise(path.parts))


def find(rule: Rule, texts: dict[Path, str]) -> tuple[Path, str]:
    """The file that the rule is about, and its text with the fault in it."""
    words = r"\s+".join(re.escape(word) for word in rule.find.split())
    pattern = re.compile(re.sub(r"<([a-z])>", r"(?P<\1>\\w+)", words))
    places = {path: text for path, text in texts.items() if rule.concerns(path)}
    found = [(path, match) for path, text in places.items() for match in pattern.finditer(text)]
    if len(found) != 1:
        names = ", ".join(path.name for path, _ in found) or "nowhere"
        raise StaleRule(f"{rule.name}: its text occurs {len(found)} times ({names})")
    path, match = found[0]
    replaced = re.sub(r"<([a-z])>", lambda name: match[name[1]], rule.replace)
    return path, texts[path][: match.start()] + replaced + texts[path][match.end() :]


def read_sources(folder: Path) -> dict[Path, str]:
    paths = [path for path in sorted(folder.rglob("*")) if path.suffix in SUFFIXES]
    return {path: path.read_text(encoding="utf-8") for path in paths}
