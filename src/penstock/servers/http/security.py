"""Protection of browsers: security headers, and checks of host name, origin and CSRF token."""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.responses import Response

from penstock.domain.validation import shown
from penstock.servers.http.auth import Identity, csrf_matches
from penstock.servers.http.bodies import FORM, content_type, form_of
from penstock.servers.http.problems import Problem
from penstock.servers.http.request import HttpRequest
from penstock.servers.http.state import HttpState

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
POLICY = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
HEADERS: list[tuple[bytes, bytes]] = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
TRANSPORT_SECURITY = (b"strict-transport-security", b"max-age=31536000")
NO_STORE = (b"cache-control", b"no-store")
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})
CSRF_HEADER = "x-csrf-token"
CSRF_FIELD = "csrf"


def add_security_headers(response: Response, is_secure: bool) -> None:
    """Headers of a handler win: a page may have a stricter policy, a file may be cached."""
    given = dict(response.raw_headers)
    response.raw_headers += [one for one in (*HEADERS, NO_STORE) if one[0] not in given]
    if is_secure:
        response.raw_headers.append(TRANSPORT_SECURITY)


def check_host(request: HttpRequest, state: HttpState) -> None:
    """Without users the host name must be one of this machine, as a protection against DNS rebinding."""
    given = request.fields.get(b"host", b"").decode("latin-1").lower()
    name = given.rsplit(":", 1)[0] if not given.endswith("]") else given
    if name in state.hosts:
        return
    is_open = state.identify is None and not state.users.need_password
    if (is_open or state.hosts) and name not in LOOPBACK_NAMES:
        raise Problem(421, f"the server does not answer to the name {shown(given)}: add it to the setting http.hosts")


def check_origin(request: HttpRequest) -> None:
    """Refuse changes from pages of other sites."""
    fields = request.fields
    where = fields.get(b"sec-fetch-site")
    if where is not None:
        if where not in (b"same-origin", b"none"):
            site = shown(where.decode("latin-1"))
            raise Problem(403, f"a page of another site must not change anything here ({site})", "CrossSite")
        return
    origin = fields.get(b"origin")
    if origin is not None and urlsplit(origin).netloc.lower() != fields.get(b"host", b"").lower():
        site = shown(origin.decode("latin-1"))
        raise Problem(403, f"a page of {site} must not change anything here", "CrossSite")


async def check_csrf(request: HttpRequest, identity: Identity) -> None:
    """Browsers send the session cookie with every request; only pages of this server know the token."""
    given = request.headers.get(CSRF_HEADER)
    if given is None and content_type(request) == FORM:
        given = (await form_of(request)).get(CSRF_FIELD)
    if not csrf_matches(identity, given):
        raise Problem(403, "the form is too old or not ours: load the page again and repeat", "CsrfFailed")
