"""Authentication by token, by name and password, or by a browser's session.

    Authorization: Bearer penstock_…          a token
    Authorization: Basic …                    name and password
    Cookie: penstock_session=…                a browser that has logged in

Without users, password or token, clients on this machine are the default user and all others are refused.
"""

from __future__ import annotations

import base64
import hmac
import ipaddress
from functools import lru_cache
from typing import Literal, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from penstock.domain.validation import shown
from penstock.servers.access import Right, User
from penstock.servers.http.problems import Problem
from penstock.servers.http.request import HttpRequest
from penstock.servers.http.router import path_to
from penstock.servers.http.state import HttpState, http_state
from penstock.servers.logins import TooManyLogins

Via = Literal["cookie", "bearer", "basic", "open", "host"]
Answer = TypeVar("Answer", bound=Response)
COOKIE = "penstock_session"
SCOPE_KEY = "penstock.identity"
CHALLENGE = ("www-authenticate", 'Bearer realm="penstock", Basic realm="penstock", charset="UTF-8"')
PROTECTED = (
    "Penstock is running in protected mode: no users, password or token are set, so only clients on this machine may "
    "use it. Set one (see `penstock serve --example-config`) and restart it."
)
# Headers of a proxy on this machine that forwards requests of others.
FORWARDED = frozenset({b"forwarded", b"x-forwarded-for", b"x-real-ip"})


class Identity(msgspec.Struct, frozen=True):
    """The authenticated user, and by which method. `csrf` is the value of the field `csrf` in every form."""

    user: User
    via: Via
    csrf: str

    @property
    def name(self) -> str:
        return self.user.name

    @property
    def role(self) -> str:
        return self.user.role or "custom"

    def may(self, right: Right, queue: str | None = None) -> bool:
        return self.user.may(right, queue)


def identity_of(request: Request) -> Identity:
    identity: Identity = request.scope[SCOPE_KEY]
    return identity


def check_right(identity: Identity, right: Right, queue: str | None) -> None:
    """For a queue without the right to it the error is the same as for one that does not exist."""
    if identity.user.may(right, queue):
        return
    if not identity.may(right):
        raise Problem(403, f"user {shown(identity.name)} ({identity.role}) has no right to {right.value}", "Forbidden")
    if queue is not None:
        raise Problem(404, f"there is no queue {shown(queue)} that user {shown(identity.name)} may use", "NotFound")


def check_all_queues(identity: Identity, what: str) -> None:
    """For documents about all queues: the user needs the right to each of them."""
    if not identity.user.sees_all:
        raise Problem(
            403, f"{what} is for those who may look at all queues, not for {shown(identity.name)}", "Forbidden"
        )


async def identify(request: HttpRequest, state: HttpState) -> Identity | None:
    """The identity of the client, None without credentials; invalid ones raise Problem."""
    if state.identify is not None:
        user = await state.identify(request)
        return None if user is None else Identity(user, "host", state.open_csrf)
    authorization = request.fields.get(b"authorization")
    if authorization is not None:
        return await _by_header(request, state, authorization.decode("latin-1"))
    name = request.cookies.get(COOKIE) if b"cookie" in request.fields else None
    if name is not None:
        found = state.sessions.find(name)
        if found is not None:
            return Identity(found[1], "cookie", found[0].csrf)
    user = state.users.open_user
    if user is None:
        return None
    if not is_local(request):
        raise Problem(403, PROTECTED, "ProtectedMode")
    return Identity(user, "open", state.open_csrf)


def is_local(request: HttpRequest) -> bool:
    """Judged by the address of the peer, which cannot be forged; a Unix socket has none."""
    if not FORWARDED.isdisjoint(request.fields):
        return False
    client = request.scope.get("client")
    return client is None or _is_loopback(client[0])


@lru_cache(maxsize=1024)
def _is_loopback(text: str) -> bool:
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


# -- tokens and passwords --------------------------------------------------------------------------------------------


async def _by_header(request: HttpRequest, state: HttpState, authorization: str) -> Identity:
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() == "bearer":
        user = await _check(request, state, "", value.strip())
        return Identity(user, "bearer", state.open_csrf)
    if scheme.lower() == "basic":
        name, secret = _name_and_password(value)
        return Identity(await _check(request, state, name, secret), "basic", state.open_csrf)
    raise _unauthorized("the Authorization header is neither Bearer nor Basic")


def _name_and_password(value: str) -> tuple[str, str]:
    try:
        name, colon, password = base64.b64decode(value, validate=True).decode().partition(":")
    except ValueError:
        colon = name = password = ""
    if not colon:
        raise _unauthorized("the Authorization header is not base64 of name:password")
    return name, password


async def _check(request: Request, state: HttpState, name: str, secret: str) -> User:
    """The user with this password, or with this token when there is no name."""
    logins, address = state.logins, _address(request)
    try:
        if name:
            user = await logins.by_password(address, name, secret.encode(errors="surrogateescape"))
        else:
            user = logins.by_token(address, secret)
    except TooManyLogins as error:
        raise Problem(429, str(error), "TooManyLogins", headers=[("retry-after", "1")]) from None
    if user is None:
        raise _unauthorized("there is no such token" if not name else "the name or the password is wrong")
    return user


def _address(request: Request) -> str:
    client = request.scope.get("client")
    return "local" if client is None else str(client[0])


def _unauthorized(why: str) -> Problem:
    return Problem(401, why, "Unauthorized", headers=[CHALLENGE])


def login_needed() -> Problem:
    return _unauthorized("say who you are: with a token (Authorization: Bearer), or by name and password (Basic)")


# -- browsers --------------------------------------------------------------------------------------------------------


async def log_in(request: Request, name: str, secret: str, answer: Answer) -> Answer:
    """Begin a session and set its cookie. `secret` is a password, or a token if there is no name."""
    state = http_state(request)
    user = await _check(request, state, name, secret)
    old = request.cookies.get(COOKIE)
    if old is not None:
        state.sessions.end(old)
    answer.set_cookie(
        COOKIE,
        state.sessions.begin(user),
        path=_cookie_path(request),
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return answer


def log_out(request: Request, answer: Answer) -> Answer:
    name = request.cookies.get(COOKIE)
    if name is not None:
        http_state(request).sessions.end(name)
    answer.delete_cookie(COOKIE, path=_cookie_path(request), httponly=True, samesite="strict")
    return answer


def _cookie_path(request: Request) -> str:
    return path_to(request.scope).rstrip("/") or "/"


def safe_next(request: Request, value: str | None) -> str:
    """Where to go after a login: a path of this site and nothing else."""
    home = path_to(request.scope)
    if value is None or not value.startswith(home) or value.startswith("//"):
        return home
    # Browsers read a backslash as a slash, and leave out tabs and line ends.
    return home if "\\" in value or any(ord(letter) < 0x21 for letter in value) else value


def csrf_matches(identity: Identity, given: str | None) -> bool:
    return given is not None and hmac.compare_digest(identity.csrf.encode(), given.encode())
