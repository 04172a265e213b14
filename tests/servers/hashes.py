"""Hashes of passwords for users of tests: as older versions made them, which are quicker to check than new ones."""

from __future__ import annotations

import base64
import hashlib


def older_hash(password: str) -> str:
    salt = bytes(16)
    digest = hashlib.scrypt(password.encode(), salt=salt, n=2**14, r=8, p=1, maxmem=64 * 1024 * 1024, dklen=32)
    return f"scrypt${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}"
