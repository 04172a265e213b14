"""The shared statements in the words of MariaDB and MySQL."""

from __future__ import annotations

RULES = (
    (r"/\*! (.*?) \*/", r"\1"),
    (r'"(\w+)"', r"`\1`"),
    (r"iif\(", "if("),
    (r"json_extract\(", "json_value("),
    (r"insert or ignore\b", "insert ignore"),
    (r"insert or replace\b", "replace"),
    (r"on conflict \([^)]*\) do update\s+set\b", "on duplicate key update"),
    (r"excluded\.(\w+)", r"values(\1)"),
)
