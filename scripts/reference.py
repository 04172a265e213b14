"""Write the reference pages of the documentation from the tables in `penstock.domain`.

python scripts/reference.py            writes docs/lifecycle.md and docs/policy.md
python scripts/reference.py --check    exits with 1 and a diff when a page is stale
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from penstock.domain.lifecycle import OUTCOMES, TABLE
from penstock.domain.policy import FIELDS, PolicyField

DOCS = Path(__file__).parent.parent / "docs"


def main() -> int:
    if sys.argv[1:] not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    if sys.argv[1:]:
        stale = differences()
        print("".join(stale), end="")
        return 1 if stale else 0
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")
    return 0


def differences() -> list[str]:
    """A diff of each stale page."""
    found = []
    for name, page in PAGES.items():
        old, new = (DOCS / name).read_text(encoding="utf-8"), page()
        if old != new:
            lines = difflib.unified_diff(old.splitlines(True), new.splitlines(True), name, f"{name} (generated)")
            found.append("".join(lines))
    return found


def lifecycle() -> str:
    rows = (
        f"| {', '.join(source or '(new)' for source in row.sources)} | {row.event} | {row.condition} | {row.target} |"
        for row in TABLE
    )
    return LIFECYCLE.format(diagram="\n".join(_diagram()), rows="\n".join(rows))


def _diagram() -> Iterator[str]:
    for row in TABLE:
        label = f"{row.event}: {row.condition}" if row.condition else row.event
        for source in row.sources:
            yield f"    {source or '[*]'} --> {row.target}: {label}"
    for outcome in OUTCOMES:
        yield f"    {outcome} --> [*]"


def policy() -> str:
    rows = (
        f"| `{field.name}` | {_values(field)} | {_default(field)} | {field.description} |" for field in FIELDS.values()
    )
    return POLICY.format(rows="\n".join(rows))


def _values(field: PolicyField) -> str:
    """The values that a policy field takes."""
    if field.kind == "seconds":
        values = f"seconds, {'more than' if field.excludes_minimum else 'at least'} {field.minimum}"
    elif field.kind == "boolean":
        values = "true or false"
    elif field.kind == "choice":
        values = " or ".join(f"`{choice}`" for choice in field.choices)
    elif field.kind == "name":
        values = "name of a group"
    else:
        values = f"{field.kind}, {field.minimum} to {field.maximum}"
    return f"{values}; or none" if field.is_nullable else values


def _default(field: PolicyField) -> str:
    return "none" if field.default is None else f"`{str(field.default).lower()}`"


LIFECYCLE = """# The life of a message in a group

Written from `src/penstock/domain/lifecycle.py` by `scripts/reference.py`; change it there.

```mermaid
stateDiagram-v2
{diagram}
```

| from | event | condition | to |
|---|---|---|---|
{rows}

A deadline that passes while an `at_least_once` message is leased only ends the lease; the message is never dropped
for it. Until a receive or a sweep has taken it back, its consumer may still settle it. Every outcome but `succeeded`
leaves a dead letter, except for removed messages: there is no message to keep.
"""

POLICY = """# Policy of a queue

Written from `src/penstock/domain/policy.py` by `scripts/reference.py`; change it there.

`store.queue(name, **fields)`, `penstock queues declare`, `PATCH /queues/{{queue}}/policy` and the SQL function
`penstock.declare` set the fields they are given; the others keep their value. A change applies from the next operation
on. No duration may be longer than a century.

| field | values | default | meaning |
|---|---|---|---|
{rows}

The delay before retry *n* is `backoff_base_seconds` × `backoff_factor`^(*n* - 1), at most `backoff_max_seconds`, plus a
random part of up to `backoff_jitter_seconds`.
"""

PAGES: dict[str, Callable[[], str]] = {"lifecycle.md": lifecycle, "policy.md": policy}


if __name__ == "__main__":
    sys.exit(main())
