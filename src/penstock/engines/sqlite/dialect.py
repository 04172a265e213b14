"""The shared statements in SQLite's words."""

from __future__ import annotations

RULES = (
    (r"\s/\*!.*?\*/", ""),
    # There is one writer.
    (r"\sfor update\b", ""),
    # None of the names is reserved.
    (r'"(\w+)"', r"\1"),
    (r"greatest\(", "max("),
    (r"least\(", "min("),
    (r" div ", " / "),
    # A list of any length is one binding.
    (r"\(:values\)", "(select value from carray(:values))"),
)
