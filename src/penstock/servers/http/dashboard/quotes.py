"""Quoting of names for Python, shells and SQL. A name may hold quotes, spaces, dollar signs or characters that change
the reading direction; invisible characters are escaped."""

from __future__ import annotations

import shlex


def python(text: str) -> str:
    """A Python literal, with double quotes if that needs no escapes."""
    literal = repr(text)
    plain = literal[1:-1]
    return f'"{plain}"' if literal[0] == "'" and '"' not in plain and "\\" not in plain else literal


def shell(text: str) -> str:
    """For sh; with invisible characters, `$'...'` of bash, zsh and ksh."""
    if text.isprintable():
        return shlex.quote(text)
    return "$'" + "".join(_shell_escape(character) for character in text) + "'"


def argument(text: str) -> str:
    """As `shell`, for the command `penstock`, where a word that begins with a dash would be an option."""
    return ("-- " if text.startswith("-") else "") + shell(text)


def _shell_escape(character: str) -> str:
    if character in ("'", "\\"):
        return "\\" + character
    return character if character.isprintable() else f"\\U{ord(character):08x}"


def postgres(text: str) -> str:
    """A standard literal; with backslashes or invisible characters, an escape literal."""
    doubled = text.replace("'", "''")
    if text.isprintable():
        return f"'{doubled}'"
    escaped = doubled.replace("\\", "\\\\")
    return "E'" + "".join(one if one.isprintable() else f"\\U{ord(one):08x}" for one in escaped) + "'"


def mariadb(text: str) -> str:
    """A literal that means the same in every `sql_mode`: hexadecimal, unless the text is plain words."""
    is_plain = text.isascii() and text.replace(" ", "").replace("-", "").replace("_", "").isalnum()
    return f"'{text}'" if is_plain else f"_utf8mb4 x'{text.encode().hex()}'"


def sqlite(text: str) -> str:
    """SQLite has no escapes: invisible characters are concatenated as `char(n)`."""
    pieces: list[str] = []
    seen = ""
    for character in text:
        if character.isprintable():
            seen += character
            continue
        pieces += [_sqlite_plain(seen)] * bool(seen) + [f"char({ord(character)})"]
        seen = ""
    pieces += [_sqlite_plain(seen)] * (bool(seen) or not pieces)
    return " || ".join(pieces)


def _sqlite_plain(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
