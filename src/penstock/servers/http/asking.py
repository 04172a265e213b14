"""A request whose headers are looked up by name at once: several are asked for in every request."""

from __future__ import annotations

from typing import Any

from starlette.datastructures import Headers
from starlette.requests import Request


class _Named(Headers):
    """Of headers with one name the first counts, as in starlette's own."""

    def __init__(self, raw: list[tuple[bytes, bytes]]) -> None:
        super().__init__(raw=raw)
        self._by_name = dict(reversed(raw))

    def get(self, key: str, default: Any = None) -> Any:
        value = self._by_name.get(key.lower().encode("latin-1"))
        return default if value is None else value.decode("latin-1")

    def __contains__(self, key: object) -> bool:
        return str(key).lower().encode("latin-1") in self._by_name


class Asked(Request):
    @property
    def headers(self) -> Headers:
        known: Headers | None = getattr(self, "_headers", None)
        if known is None:
            known = self._headers = _Named(self.scope["headers"])
        return known
