"""Users and their rights on queues, the same for every protocol. What is not allowed is refused.

Checking a password is slow on purpose, so a valid one is cached in this process as a keyed digest. Tokens are too long
to be guessed, so a plain hash protects them.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import lru_cache

import msgspec

from penstock.domain.errors import InvalidInput
from penstock.domain.validation import check_name, nearest, shown
from penstock.servers.glob_pattern import matches
from penstock.servers.passwords import check_hash, is_slow, keep_password, quick_digest, stand_in, verify

DEFAULT = "default"
TOKEN_PREFIX = "penstock_"
MIN_TOKEN = 16
# Names have at most 255 bytes, so longer patterns are of no use.
MAX_PATTERN = 1024


class Right(StrEnum):
    """Rights of a user, with the words of the users table."""

    NOTHING = "nothing"  # needs no right
    SEND = "send"
    RECEIVE = "receive"  # and settle
    LOOK = "look"
    OPERATE = "operate"  # keep work going: redrive, pause and resume, run batches and schedules, sweep
    MANAGE = "manage"  # change what is kept: policies, schedules, flush, delete, purge, seek; and operate


class Role(StrEnum):
    """Rights that usually go together."""

    OBSERVER = "observer"
    OPERATOR = "operator"
    ADMIN = "admin"


EVERYTHING = frozenset(Right)
ALL = ("*",)
ROLES: dict[Role, frozenset[Right]] = {
    Role.OBSERVER: frozenset({Right.LOOK}),
    Role.OPERATOR: frozenset({Right.LOOK, Right.SEND, Right.RECEIVE, Right.OPERATE}),
    Role.ADMIN: EVERYTHING,
}


class User(msgspec.Struct, frozen=True):
    """`queues` are patterns. A user without password and token may connect from this machine only."""

    name: str
    password_hash: str | None
    queues: tuple[str, ...]
    rights: frozenset[Right]
    token_hash: str | None = None

    @property
    def role(self) -> Role | None:
        """The role whose rights it has, if they are exactly those of one."""
        own = self.rights - {Right.NOTHING}
        return next((role for role, rights in ROLES.items() if rights - {Right.NOTHING} == own), None)

    @property
    def sees_all(self) -> bool:
        """Whether it may look at every queue, also at future ones."""
        return self.may_everywhere(Right.LOOK)

    def may_everywhere(self, right: Right) -> bool:
        """Whether it has the right for every queue, also for future ones."""
        return right in self.rights and "*" in self.queues

    def may(self, right: Right, queue: str | None = None) -> bool:
        if right is Right.NOTHING:
            return True
        if right not in self.rights:
            return False
        return queue is None or self.queues == ALL or any(_matches(one, queue) for one in self.queues)


@lru_cache(maxsize=4096)
def _matches(pattern: str, name: str) -> bool:
    return matches(pattern, name)


class Users:
    """The users in force. Replacing them takes effect for connected clients with their next command or delivery."""

    def __init__(self, users: Iterable[User]) -> None:
        self.version = 0
        self._known: dict[str, bytes] = {}
        self._users: dict[str, User] = {}
        self.replace(users)

    def replace(self, users: Iterable[User]) -> None:
        self.version += 1
        self._users = {user.name: user for user in users}
        self._tokens = {user.token_hash: user.name for user in self._users.values() if user.token_hash is not None}
        self._stand_in = stand_in(one.password_hash for one in self._users.values() if one.password_hash is not None)
        self._known.clear()
        default = self._users.get(DEFAULT)
        # The user of clients that have not authenticated, if they may do anything.
        self.open_user = default if default and default.password_hash is None and default.token_hash is None else None
        self.need_password = self.open_user is None

    def find(self, name: str) -> User | None:
        return self._users.get(name)

    def find_by_token(self, token: str) -> User | None:
        name = self._tokens.get(hash_token(token))
        return None if name is None else self._users.get(name)

    def has_token(self, name: str, token: bytes) -> bool:
        user = self._users.get(name)
        if user is None or user.token_hash is None:
            return False
        return hmac.compare_digest(user.token_hash, hash_token(token.decode(errors="surrogateescape")))

    def remembers(self, name: str, password: bytes) -> bool:
        known = self._known.get(name)
        return known is not None and hmac.compare_digest(known, quick_digest(password))

    def is_quick(self, name: str) -> bool:
        """Whether `check` is fast."""
        return not is_slow(self._stored(self._users.get(name)))

    def check(self, name: str, password: bytes) -> bool:
        """Run it on a thread unless it is quick. Takes the same time for a user that does not exist."""
        if self.has_token(name, password):
            return True
        user = self._users.get(name)
        right = verify(password, self._stored(user))
        if user is None or user.password_hash is None or not right:
            return False
        if self._users.get(name) is user:  # users may be replaced meanwhile
            self._known[name] = quick_digest(password)
        return True

    def _stored(self, user: User | None) -> str:
        return self._stand_in if user is None or user.password_hash is None else user.password_hash


def make_token() -> str:
    return TOKEN_PREFIX + secrets.token_urlsafe(32)


def hash_token(token: str) -> str:
    digest = hashlib.sha256(token.encode(errors="surrogateescape")).digest()
    return f"sha256${base64.b64encode(digest).decode()}"


def check_token_hash(name: str, value: str) -> str:
    kind, _, rest = value.partition("$")
    try:
        if kind == "sha256" and len(base64.b64decode(rest, validate=True)) == 32:
            return value
    except ValueError:
        pass
    raise InvalidInput(f"token_hash of user {shown(name)} is no hash: make one with `penstock serve --make-token`")


def make_user(
    name: str,
    password_hash: str | None,
    queues: Iterable[str],
    rights: Iterable[str] = (),
    role: str | None = None,
    token_hash: str | None = None,
) -> User:
    """With a role and without `queues`, the user may use all of them."""
    check_name("user", name)
    if password_hash is not None:
        check_hash(name, password_hash)
    if token_hash is not None:
        check_token_hash(name, token_hash)
    patterns = tuple(queues)
    for pattern in patterns:
        if len(pattern) > MAX_PATTERN:
            raise InvalidInput(f"a queue pattern of user {shown(name)} is longer than {MAX_PATTERN} characters")
    return User(name, password_hash, patterns or (ALL if role else ()), _rights(name, tuple(rights), role), token_hash)


def _rights(name: str, words: tuple[str, ...], role: str | None) -> frozenset[Right]:
    if role is not None:
        if words:
            raise InvalidInput(f"user {shown(name)} has both a role and rights: give one of them")
        known = [one.value for one in Role]
        if role not in known:
            raise InvalidInput(f"user {shown(name)}: {shown(role)} is none of {', '.join(known)}{nearest(role, known)}")
        return ROLES[Role(role)]
    rights = frozenset(_right(name, one) for one in words)
    return rights | {Right.OPERATE} if Right.MANAGE in rights else rights


def _right(name: str, word: str) -> Right:
    known = [right.value for right in Right if right is not Right.NOTHING]
    if word not in known:
        raise InvalidInput(f"user {shown(name)}: {shown(word)} is none of {', '.join(known)}{nearest(word, known)}")
    return Right(word)


def make_users(password: str | None, table: Mapping[str, Mapping[str, object]], token: str | None = None) -> list[User]:
    """From settings: `password` and `token` belong to the default user, who has all rights unless the table says
    otherwise. With a table of users and neither of them there is no default user: every client has to authenticate."""
    users: dict[str, User] = {}
    if token is not None and len(token) < MIN_TOKEN:
        raise InvalidInput(f"the token has {len(token)} characters: one that cannot be guessed has {MIN_TOKEN} or more")
    if DEFAULT not in table and (password is not None or token is not None or not table):
        hashed = None if password is None else keep_password(password)
        users[DEFAULT] = User(DEFAULT, hashed, ALL, EVERYTHING, None if token is None else hash_token(token))
    elif DEFAULT in table and (password is not None or token is not None):
        raise InvalidInput("the default user is told twice: by `password` or `token`, and in the table of users")
    for name, given in table.items():
        users[name] = make_user(name, **given)  # type: ignore[arg-type]  # the settings file was checked by its types
    return list(users.values())
