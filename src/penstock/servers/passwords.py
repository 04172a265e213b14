"""Password hashes.

A settings file holds salted scrypt hashes with the parameters of OWASP: one check takes a third of a second of a core
and 128 MiB. A plaintext password of the settings is held in this process as a digest with a random key: a slow hash
would protect nothing there, and would make floods of attempts expensive.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Iterable

from penstock.domain.errors import InvalidInput
from penstock.domain.validation import shown

COST, BLOCK, LANES = 2**17, 8, 1
# Parameters of hashes without any, made by older versions.
OLDER_COST = 2**14
COSTS = frozenset(2**power for power in range(14, 21))
MAX_MEMORY = 1024 * 1024 * 1024
SLOW, QUICK = "scrypt", "memory"
_key = secrets.token_bytes(32)


def hash_password(password: str) -> str:
    """For a settings file."""
    salt = secrets.token_bytes(16)
    digest = _scrypt(password.encode(), salt, COST, BLOCK, LANES)
    return f"{SLOW}$n={COST},r={BLOCK},p={LANES}${_text(salt)}${_text(digest)}"


def keep_password(password: str) -> str:
    """For this process only."""
    return f"{QUICK}${_text(quick_digest(password.encode()))}"


def quick_digest(password: bytes) -> bytes:
    return hmac.digest(_key, password, "sha256")


def is_slow(stored: str) -> bool:
    return stored.startswith(SLOW)


def verify(password: bytes, stored: str) -> bool:
    """Run it on a thread if the hash is slow."""
    if not is_slow(stored):
        return hmac.compare_digest(quick_digest(password), base64.b64decode(stored.partition("$")[2]))
    cost, block, lanes, salt, expected = _read(stored)
    return hmac.compare_digest(_scrypt(password, salt, cost, block, lanes), expected)


def stand_in(stored: Iterable[str]) -> str:
    """A hash to compare with for a user that does not exist, as slow as the slowest of the others. No password has this
    hash."""
    slow = [_read(one)[:3] for one in stored if is_slow(one)]
    if not slow:
        return f"{QUICK}${_text(bytes(32))}"
    cost, block, lanes = max(slow)
    return f"{SLOW}$n={cost},r={block},p={lanes}${_text(bytes(16))}${_text(bytes(32))}"


def check_hash(name: str, value: str) -> str:
    try:
        cost, block, lanes, _, digest = _read(value)
        fits = cost in COSTS and block in range(1, 33) and lanes in range(1, 17) and 128 * cost * block <= MAX_MEMORY
        if is_slow(value) and len(digest) == 32 and fits:
            return value
    except ValueError:
        pass
    raise InvalidInput(
        f"password_hash of user {shown(name)} is no hash: make one with `penstock serve --hash-password`"
    )


def _read(stored: str) -> tuple[int, int, int, bytes, bytes]:
    """The parameters, the salt and the digest of a slow hash."""
    kind, *parameters, salt, digest = stored.split("$")
    if kind != SLOW or len(parameters) > 1:
        raise ValueError(kind)
    cost, block, lanes = OLDER_COST, BLOCK, LANES
    if parameters:
        fields = dict(one.split("=") for one in parameters[0].split(","))
        if sorted(fields) != ["n", "p", "r"]:
            raise ValueError(parameters[0])
        cost, block, lanes = (int(fields[name]) for name in ("n", "r", "p"))
    return cost, block, lanes, base64.b64decode(salt, validate=True), base64.b64decode(digest, validate=True)


def _scrypt(password: bytes, salt: bytes, cost: int, block: int, lanes: int) -> bytes:
    memory = 128 * block * (cost + lanes + 2)
    return hashlib.scrypt(password, salt=salt, n=cost, r=block, p=lanes, maxmem=memory, dklen=32)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
