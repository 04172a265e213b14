"""The error responses of each operation, for the OpenAPI document."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, NamedTuple

from penstock.domain.errors import StoreUnavailable
from penstock.servers.access import Right
from penstock.servers.http.api.operations import ApiOperation
from penstock.servers.http.problems import CONTENT_TYPE, STORE_DETAILS, Problem


class ErrorResponse(NamedTuple):
    """`kind` and `detail` are those of the example."""

    description: str
    kind: str
    detail: str


ERRORS: dict[int, ErrorResponse] = {
    400: ErrorResponse(
        "A value is wrong; `detail` names it and what would be right.",
        "InvalidInput",
        "limit must be at most 1000, not 5000",
    ),
    401: ErrorResponse(
        "No valid token or password was given.", "Unauthorized", "log in, or send a token: Authorization: Bearer ..."
    ),
    403: ErrorResponse("The user has not the right.", "Forbidden", "user 'ada' (viewer) has no right to manage"),
    404: ErrorResponse(
        "There is no such queue, message, group, batch, schedule or address.",
        "NotFound",
        "there is no queue 'ordrs': did you mean 'orders'?",
    ),
    409: ErrorResponse(
        "The state of the message, batch or queue does not allow it; `error` says which: LeaseLost, DuplicateAddress "
        "(with `existing_id`), BatchClosed, ...",
        "LeaseLost",
        "the lease of message 01a1e17a-5c4b-79be-899e-000000000002 in group 'default' has ended",
    ),
    413: ErrorResponse(
        "The body, or a payload in it, is too large.",
        "PayloadTooLarge",
        "payload has 20971520 bytes: this queue takes at most 16777216 (max_payload_bytes)",
    ),
    415: ErrorResponse(
        "The body is not of the content type that the operation takes.",
        "WrongContentType",
        "the body must be JSON (Content-Type: application/json), not 'text/plain'",
    ),
    429: ErrorResponse(
        "Too many failed logins, or too many requests of this user that wait; `Retry-After` says when to try again.",
        "TooManyLogins",
        "too many attempts to authenticate at the moment: try again in a second",
    ),
    503: ErrorResponse(
        "The store cannot be reached; `Retry-After` says when to try again.",
        "StoreUnavailable",
        STORE_DETAILS[StoreUnavailable],
    ),
}


def statuses(one: ApiOperation, needs_login: bool) -> list[int]:
    """The error statuses of the operation; others (500, 507, ...) are the document's default."""
    found = {400, 503}
    if needs_login:
        found |= {401, 403, 429}
    if one.values and (needs_login or one.right is not Right.SEND):
        # A queue is created by its first send; one that the user may not use is reported as not found.
        found.add(404)
    if one.method != "GET":
        found |= {409, 413, 415}
    return sorted(found)


def component_name(status: int) -> str:
    return HTTPStatus(status).phrase.replace(" ", "")


def responses(schema: dict[str, Any]) -> dict[str, Any]:
    """Each error as a component, by name."""
    return {component_name(status): _response(status, one, schema) for status, one in ERRORS.items()}


def _response(status: int, one: ErrorResponse, schema: dict[str, Any]) -> dict[str, Any]:
    example = Problem(status, one.detail, one.kind).document()
    return {"description": one.description, "content": {CONTENT_TYPE: {"schema": schema, "example": example}}}
