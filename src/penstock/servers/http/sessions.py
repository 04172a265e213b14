"""Browsers that have logged in: a random name in a cookie, everything else stays here."""

from __future__ import annotations

import hashlib
import secrets
import time

import msgspec

from penstock.servers.access import User, Users

# The one that was quiet for longest gives way.
MAX_SESSIONS = 10_000


class Session(msgspec.Struct):
    """`credentials` are those that the user had at login: with others the session is over."""

    user_name: str
    csrf: str
    credentials: tuple[str | None, str | None]
    seen_at: float


class Sessions:
    """Kept under a hash of their name, so that a picture of the memory lets nobody in."""

    def __init__(self, users: Users, idle_seconds: float) -> None:
        self._users = users
        self._idle_seconds = idle_seconds
        self._sessions: dict[bytes, Session] = {}

    def begin(self, user: User) -> str:
        name = secrets.token_urlsafe(32)
        session = Session(user.name, secrets.token_urlsafe(32), _credentials(user), time.monotonic())
        self._sessions[_key(name)] = session
        while len(self._sessions) > MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        return name

    def find(self, name: str) -> tuple[Session, User] | None:
        key = _key(name)
        session = self._sessions.pop(key, None)
        if session is None:
            return None
        user = self._users.find(session.user_name)
        now = time.monotonic()
        if user is None or _credentials(user) != session.credentials or now - session.seen_at > self._idle_seconds:
            return None
        session.seen_at = now
        self._sessions[key] = session
        return session, user

    def end(self, name: str) -> None:
        self._sessions.pop(_key(name), None)


def _credentials(user: User) -> tuple[str | None, str | None]:
    return user.password_hash, user.token_hash


def _key(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()
