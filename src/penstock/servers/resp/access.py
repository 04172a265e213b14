"""Users: who may connect, and what each may do with which queues. What is not allowed is refused.

Passwords are kept as salted scrypt hashes. Checking one is slow on purpose, so a password that was right is remembered
for this run under a key that never leaves the process.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Iterable, Mapping
from functools import lru_cache

import msgspec

from penstock.domain.errors import InvalidInput
from penstock.domain.names import check_name, nearest, shown
from penstock.servers.resp.globbing import matches
from penstock.servers.resp.table import Right

DEFAULT = "default"
# About 30 ms and 16 MiB: what OWASP asks for as a minimum at this block size.
COST, BLOCK, LANES = 2**14, 8, 1
EVERYTHING = frozenset(Right)
# A name has at most 255 bytes; a pattern that is much longer matches nothing that a shorter one would not.
MAX_PATTERN = 1024


class User(msgspec.Struct, frozen=True):
    """`queues` are patterns. Without a password the user may come from this machine only."""

    name: str
    password_hash: str | None
    queues: tuple[str, ...]
    rights: frozenset[Right]

    def may(self, right: Right, queue: str | None = None) -> bool:
        if right is Right.NOTHING:
            return True
        return right in self.rights and (queue is None or any(_matches(one, queue) for one in self.queues))


@lru_cache(maxsize=4096)
def _matches(pattern: str, name: str) -> bool:
    return matches(pattern, name)


class Users:
    """The users in force. Replacing them takes effect for connected clients with their next command or delivery."""

    def __init__(self, users: Iterable[User]) -> None:
        self.version = 0
        self._key = secrets.token_bytes(32)
        self._known: dict[str, bytes] = {}
        self._users: dict[str, User] = {}
        self.replace(users)

    def replace(self, users: Iterable[User]) -> None:
        self.version += 1
        self._users = {user.name: user for user in users}
        self._known.clear()

    def find(self, name: str) -> User | None:
        return self._users.get(name)

    @property
    def need_password(self) -> bool:
        """Whether a client has to say who it is before it may do anything."""
        default = self._users.get(DEFAULT)
        return default is None or default.password_hash is not None

    def remembers(self, name: str, password: bytes) -> bool:
        known = self._known.get(name)
        return known is not None and hmac.compare_digest(known, self._mark(password))

    def check(self, name: str, password: bytes) -> bool:
        """Slow: for a thread. Takes the same time for a user that does not exist."""
        user = self._users.get(name)
        stored = None if user is None else user.password_hash
        right = verify(password, stored or UNKNOWN_HASH)
        if stored is None or not right:
            return False
        self._known[name] = self._mark(password)
        return True

    def _mark(self, password: bytes) -> bytes:
        return hmac.digest(self._key, password, "sha256")


def hash_password(password: str) -> str:
    salt = secrets.token_bytes(16)
    return f"scrypt${_text(salt)}${_text(_scrypt(password.encode(), salt))}"


def verify(password: bytes, stored: str) -> bool:
    _, salt, expected = stored.split("$")
    return hmac.compare_digest(_scrypt(password, base64.b64decode(salt)), base64.b64decode(expected))


def _scrypt(password: bytes, salt: bytes) -> bytes:
    return hashlib.scrypt(password, salt=salt, n=COST, r=BLOCK, p=LANES, maxmem=64 * 1024 * 1024, dklen=32)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


# No password has it: it is only there to be compared with.
UNKNOWN_HASH = f"scrypt${_text(bytes(16))}${_text(bytes(32))}"


def check_hash(name: str, value: str) -> str:
    parts = value.split("$")
    try:
        if parts[0] == "scrypt" and len(base64.b64decode(parts[2], validate=True)) == 32:
            return value
    except (ValueError, IndexError):
        pass
    raise InvalidInput(f"password_hash of user {shown(name)} is none: make one with `penstock serve --hash-password`")


def make_user(name: str, password_hash: str | None, queues: Iterable[str], rights: Iterable[str]) -> User:
    check_name("user", name)
    if password_hash is not None:
        check_hash(name, password_hash)
    patterns = tuple(queues)
    for pattern in patterns:
        if len(pattern) > MAX_PATTERN:
            raise InvalidInput(f"a queue pattern of user {shown(name)} is longer than {MAX_PATTERN} characters")
    return User(name, password_hash, patterns, frozenset(_right(name, one) for one in rights))


def _right(name: str, word: str) -> Right:
    known = [right.value for right in Right if right is not Right.NOTHING]
    if word not in known:
        raise InvalidInput(f"user {shown(name)}: {shown(word)} is none of {', '.join(known)}{nearest(word, known)}")
    return Right(word)


def make_users(password: str | None, table: Mapping[str, Mapping[str, object]]) -> list[User]:
    """From settings: `password` is the default user's, who may do everything unless the table says otherwise. With a
    table of users but no password there is no default user: everybody has to say who they are."""
    users: dict[str, User] = {}
    if DEFAULT not in table and (password is not None or not table):
        hashed = None if password is None else hash_password(password)
        users[DEFAULT] = User(DEFAULT, hashed, ("*",), EVERYTHING)
    elif DEFAULT in table and password is not None:
        raise InvalidInput("the default user has two passwords: one in `password`, one in the table of users")
    for name, given in table.items():
        users[name] = make_user(name, **given)  # type: ignore[arg-type]  # the settings file was checked by its types
    return list(users.values())
