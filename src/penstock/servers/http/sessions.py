"""Browser sessions: a random name in a cookie, everything else on the server."""

from __future__ import annotations

import hashlib
import secrets
import time

import msgspec

from penstock.servers.access import User, Users

# Beyond this the least recently used session is dropped.
MAX_SESSIONS = 10_000


class BrowserSession(msgspec.Struct):
    """`credentials` are those of the login: a session ends when the user gets others."""

    user_name: str
    csrf: str
    credentials: tuple[str | None, str | None]
    seen_at: float


class Sessions:
    """Stored under a hash of the cookie, so that a memory dump reveals no usable one."""

    def __init__(self, users: Users, idle_seconds: float) -> None:
        self._users = users
        self._idle_seconds = idle_seconds
        self._sessions: dict[bytes, BrowserSession] = {}

    def begin(self, user: User) -> str:
        name = secrets.token_urlsafe(32)
        session = BrowserSession(user.name, secrets.token_urlsafe(32), _credentials(user), time.monotonic())
        self._sessions[_key(name)] = session
        while len(self._sessions) > MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        return name

    def find(self, name: str) -> tuple[BrowserSession, User] | None:
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
