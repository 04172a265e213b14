"""Errors as problem details (RFC 9457): a status, a fixed title, and a sentence that names the invalid value and what
is expected."""

from __future__ import annotations

import logging
import secrets
from http import HTTPStatus
from typing import Any

import msgspec

from penstock.domain import errors

logger = logging.getLogger("penstock.http")
CONTENT_TYPE = "application/problem+json"
# A store that is busy is usually free again in a moment.
RETRY_SECONDS = 1


class Problem(Exception):
    """An error response with its headers; `members` are further members of the document."""

    def __init__(self, status: int, detail: str, kind: str | None = None, *, headers: Any = (), **members: Any) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.kind = kind or HTTPStatus(status).phrase
        self.headers: list[tuple[str, str]] = list(headers)
        self.members = members

    @property
    def title(self) -> str:
        return HTTPStatus(self.status).phrase

    def document(self) -> dict[str, Any]:
        # What "about:blank" means: the title is that of the status.
        return {
            "type": "about:blank",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "error": self.kind,
            **self.members,
        }

    def encoded(self) -> bytes:
        return msgspec.json.encode(self.document())


class ProblemDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The body of every error: `detail` is for people, `error` is a code for programs."""

    type: str
    title: str
    status: int
    detail: str
    error: str
    existing_id: str | msgspec.UnsetType = msgspec.UNSET
    outcome: str | msgspec.UnsetType = msgspec.UNSET
    reason: str | msgspec.UnsetType | None = msgspec.UNSET
    incident: str | msgspec.UnsetType = msgspec.UNSET


# The status of the nearest class in an error's MRO.
STATUSES: dict[type[errors.PenstockError], int] = {
    errors.InvalidInput: 400,
    errors.PayloadTooLarge: 413,
    errors.Refused: 409,
    errors.RangeTrimmed: 410,
    errors.NotFound: 404,
    errors.MessageFailed: 409,
    errors.WaitTimeout: 408,
    errors.StoreUnavailable: 503,
    errors.StoreFull: 507,
    errors.DiskError: 503,
}
# Errors of the store name files and statements: their text goes to the log only.
STORE_DETAILS: dict[type[errors.PenstockError], str] = {
    errors.StoreUnavailable: "the store is busy or cannot be reached for now: trying again is safe",
    errors.StoreReadOnly: "the store may be read but not written",
    errors.StoreFull: "the store has no room left: nothing was written",
    errors.DiskError: "the disk under the store failed: whether this call took effect is not known",
}
STORE_FAILED = "the store failed: the server's log says why"


def problem_of(error: BaseException) -> Problem:
    if isinstance(error, Problem):
        return error
    if isinstance(error, errors.StoreError):
        return _store_problem(error)
    if isinstance(error, errors.PenstockError):
        return _domain_problem(error)
    incident = secrets.token_hex(4)
    logger.error("incident %s: %s", incident, type(error).__name__, exc_info=error)
    return Problem(500, f"a mistake in Penstock: the server's log has it as incident {incident}", incident=incident)


def _store_problem(error: errors.StoreError) -> Problem:
    logger.warning("store: %s: %s", type(error).__name__, error)
    status = _status(error, 500)
    detail = STORE_DETAILS.get(type(error), STORE_FAILED)
    headers = [("retry-after", str(RETRY_SECONDS))] if status == 503 else []
    return Problem(status, detail, type(error).__name__, headers=headers)


def _domain_problem(error: errors.PenstockError) -> Problem:
    members: dict[str, Any] = {}
    if isinstance(error, errors.DuplicateAddress):
        members["existing_id"] = error.existing_id
    if isinstance(error, errors.MessageFailed):
        members.update(outcome=error.outcome, reason=error.reason)
    return Problem(_status(error, 500), str(error), type(error).__name__, **members)


def _status(error: errors.PenstockError, otherwise: int) -> int:
    return next((STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES), otherwise)
