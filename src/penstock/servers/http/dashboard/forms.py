"""Values of form fields: an empty field is None, and an error names the invalid one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request

from penstock.domain.errors import InvalidInput, InvalidPolicy
from penstock.domain.message import JSON, SYSTEM, decode_json
from penstock.domain.policy import PolicyField
from penstock.domain.validation import seconds_of, shown
from penstock.servers.http import bodies
from penstock.servers.http.auth import identity_of


class Form:
    def __init__(self, fields: dict[str, str], sender: str) -> None:
        self._fields = fields
        self.sender = sender

    def text(self, name: str) -> str | None:
        """None if it is empty."""
        return self._fields.get(name) or None

    def number(self, name: str) -> float | None:
        given = self.text(name)
        if given is None:
            return None
        try:
            value = float(given)
        except ValueError:
            raise InvalidInput(f"{name} must be a number, not {shown(given)}") from None
        return int(value) if value.is_integer() and abs(value) < 1 << 53 else value

    def seconds(self, name: str) -> float | None:
        """Seconds, or a duration such as 5m."""
        given = self.text(name)
        if given is None:
            return None
        try:
            value = seconds_of(given)
        except InvalidInput as error:
            raise InvalidInput(f"{name}: {error}") from None
        return int(value) if value.is_integer() and abs(value) < 1 << 53 else value

    def whole(self, name: str) -> int | None:
        given = self.text(name)
        if given is None:
            return None
        try:
            return int(given)
        except ValueError:
            raise InvalidInput(f"{name} must be a whole number, not {shown(given)}") from None

    def time(self, name: str) -> datetime | None:
        return time_of(name, self.text(name))

    def payload(self) -> tuple[bytes, str | None]:
        """JSON is sent as it was typed, after a check; text is sent as text."""
        # Browsers send a line break as CR LF.
        payload = self._fields.get("payload", "").replace("\r\n", "\n").encode()
        if self.text("content_type") != JSON:
            return payload, self.text("content_type")
        decode_json(payload)
        return payload, JSON

    def headers(self) -> dict[str, str] | None:
        """One `name: value` on each line."""
        lines = [line for line in (self.text("headers") or "").splitlines() if line.strip()]
        headers = {}
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon or not name.strip():
                raise InvalidInput(f"headers must be lines such as 'trace: 17', not {shown(line)}")
            headers[name.strip()] = value.strip()
        return headers or None

    def differs(self, name: str, before: str) -> bool:
        """Whether a field was changed by the user."""
        return name in self._fields and self._fields[name] != self._fields.get(before)

    def policy_value(self, field: PolicyField) -> Any:
        name = field.name
        if field.kind == "boolean":
            return self.text(name) == "true"
        if field.kind in ("name", "choice"):
            return self.text(name)
        read = {"integer": self.whole, "number": self.number}.get(field.kind, self.seconds)
        value = read(name)
        if value is None and not field.is_nullable:
            raise InvalidPolicy(f"{name} is empty: it needs a number")
        return value


async def form_of(request: Request) -> Form:
    identity = identity_of(request)
    sender = SYSTEM if identity.via == "open" else identity.name
    return Form(await bodies.form_of(request), sender)


def time_of(name: str, given: str | None) -> datetime | None:
    """A time as browsers send it (without a zone, meant as UTC) or as ISO 8601."""
    if not given:
        return None
    try:
        at = datetime.fromisoformat(given)
    except ValueError:
        raise InvalidInput(f"{name} must be a time such as 2026-11-15T09:30, in UTC, not {shown(given)}") from None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)
