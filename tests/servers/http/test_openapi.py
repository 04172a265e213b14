"""The document that describes the API, held against the live server by schemathesis."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.domain.names import MAX_NAME_BYTES
from penstock.servers.http.api import ROUTES
from penstock.servers.http.api.openapi import document, markdown
from penstock.servers.http.api.operations import OPERATIONS
from tests.servers.http.processes import HttpServer

TOKEN = "a token that is long enough"
# Valid data may still be refused by what a queue holds or allows (an address that is taken, a payload beyond the
# policy, a position beyond the end, a cron rule): no schema can say that.
LEFT_OUT = "positive_data_acceptance"
SEED = 20260131


def test_every_operation_is_described() -> None:
    told = document()
    described = {(method.upper(), path) for path, methods in told["paths"].items() for method in methods}
    assert described == {(one.method, one.pattern) for one in OPERATIONS}
    assert len(ROUTES) == len(OPERATIONS) + 1
    names = [one["operationId"] for methods in told["paths"].values() for one in methods.values()]
    assert len(names) == len(set(names))
    assert all(
        one["summary"].endswith((".", ":")) or one["summary"] for m in told["paths"].values() for one in m.values()
    )


def test_bounds_are_those_of_the_domain() -> None:
    schemas = document()["components"]["schemas"]
    (name, _) = schemas["NewMessage"]["properties"]["address"]["anyOf"]
    assert name["maxLength"] == MAX_NAME_BYTES
    assert schemas["NewMessage"]["oneOf"] == [{"required": ["payload"]}, {"required": ["payload_base64"]}]
    assert schemas["NewMessage"]["additionalProperties"] is False


def test_without_users_no_login_is_described() -> None:
    assert "security" not in document(needs_login=False)
    assert document(needs_login=True)["security"] == [{"token": []}, {"password": []}]


def test_the_page_lists_every_operation() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "http.md").read_text(encoding="utf-8")
    assert markdown() in page, "run python -m penstock.servers.http.api.openapi and put the table into docs/http.md"


def test_every_reference_leads_somewhere() -> None:
    told = document()
    assert set(_references(told)) <= {f"#/components/schemas/{name}" for name in told["components"]["schemas"]} | {
        "#/components/responses/Problem"
    }


def _references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if "$ref" in value else []
        return own + [one for part in value.values() for one in _references(part)]
    return [one for part in value for one in _references(part)] if isinstance(value, list) else []


# The edges of every value are tried where bodies and queries have most to say.
EDGES = ["send", "receive", "settle", "nak", "extend", "declare", "seek", "redrive", "dead_letters", "put_schedule"]
WAYS = {
    "all operations": ["--phases", "fuzzing", "--max-examples", "2"],
    "edges": ["--phases", "coverage", *(word for name in EDGES for word in ("--include-operation-id", name))],
}


@pytest.mark.slow
@pytest.mark.timeout(400)  # a minute or two of work for a busy machine, seconds for a quiet one
@pytest.mark.parametrize("way", WAYS)
def test_the_server_does_what_the_document_says(tmp_path: Path, way: str) -> None:
    program = shutil.which("schemathesis", path=str(Path(sys.executable).parent))
    assert program is not None, "schemathesis is not installed"
    environment = {
        "PENSTOCK_HTTP_TOKEN": TOKEN,
        "PENSTOCK_HTTP_MAX_WAIT_SECONDS": "0.05",
        "PENSTOCK_HTTP_FAILED_LOGINS_PER_SECOND": "1000000",
    }
    with HttpServer(tmp_path, environment=environment) as server:
        server.start()
        words = ["run", f"{server.http_url}/api/v1/openapi.json", "-H", f"Authorization: Bearer {TOKEN}", *WAYS[way]]
        words += ["--seed", str(SEED), "--exclude-checks", LEFT_OUT, "--warnings", "off", "--request-timeout", "60"]
        words += ["--generation-database", "none", "--output-truncate", "true"]
        done = subprocess.run([program, *words], capture_output=True, text=True, timeout=360, cwd=tmp_path)
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
        assert f"Tested: {len(OPERATIONS) if way == 'all operations' else len(EDGES)}" in done.stdout
        assert server.is_alive()
        assert "incident" not in server.said()
