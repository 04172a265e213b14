"""`penstock serve` with its HTTP door, as a process of its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import httpx

from tests.ports import free_port
from tests.servers.clients.processes import PenstockServer


class HttpServer(PenstockServer):
    """Ready when it is: it can reach its store."""

    def __init__(
        self,
        folder: Path,
        *words: str,
        url: str | None = None,
        environment: Mapping[str, str] | None = None,
        scheme: str = "http",
    ) -> None:
        self.http_port = free_port()
        self.http_url = f"{scheme}://127.0.0.1:{self.http_port}"
        settings = {
            "PENSTOCK_HTTP_ENABLED": "true",
            "PENSTOCK_HTTP_PORT": str(self.http_port),
            **(environment or {}),
        }
        super().__init__(folder, *words, url=url, environment=settings)

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.http_url}/readyz", timeout=60, verify=False).status_code == 200
        except httpx.TransportError:
            return False
