"""The document that describes the API, held against the live server by schemathesis."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import msgspec
import pytest

from penstock.domain.limits import MAX_NAME_BYTES
from penstock.servers.http.api import ROUTES
from penstock.servers.http.api.openapi import document, markdown
from penstock.servers.http.api.operations import OPERATIONS, ApiOperation
from penstock.servers.http.problems import ProblemDocument
from tests.servers.http.api_client import Api
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


@pytest.mark.parametrize(
    ("cron", "fits"), [("", False), ("0", False), ("*/5 * * * *", True), (" 0 0 3 * * MON ", True)]
)
def test_a_cron_rule_has_five_or_six_fields(cron: str, fits: bool) -> None:
    pattern = document()["components"]["schemas"]["NewSchedule"]["properties"]["cron"]["pattern"]
    assert bool(re.search(pattern, cron)) is fits


def test_without_users_no_login_is_described() -> None:
    assert "security" not in document(needs_login=False)
    assert document(needs_login=True)["security"] == [{"token": []}, {"password": []}]


def test_the_page_lists_every_operation() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "http.md").read_text(encoding="utf-8")
    assert markdown() in page, "run python -m penstock.servers.http.api.openapi and put the table into docs/http.md"


def test_every_reference_leads_somewhere() -> None:
    told = document()
    there = {f"#/components/{kind}/{name}" for kind in ("schemas", "responses") for name in told["components"][kind]}
    assert set(_references(told)) <= there


@pytest.mark.parametrize("one", OPERATIONS, ids=lambda one: one.name)
def test_examples_are_what_the_operation_takes_and_answers(one: ApiOperation) -> None:
    told = document()["paths"][one.pattern][one.method.lower()]
    if one.body is not None:
        example = told["requestBody"]["content"]["application/json"]["example"]
        msgspec.json.decode(msgspec.json.encode(example), type=one.body.kind)
    if one.returns is not bytes:
        example = told["responses"][str(one.status)]["content"]["application/json"]["example"]
        msgspec.json.decode(msgspec.json.encode(example), type=one.returns, strict=True)
    for parameter in told.get("parameters", ()):
        assert "example" in parameter


@pytest.mark.anyio
async def test_the_errors_of_an_operation_are_listed(api: Api) -> None:
    """Every operation is called with its examples: on a store without the queue, with it, and with bodies that are
    wrong. What it answers is in its list, and not left to the default."""
    for filled in (False, True):
        if filled:
            await api.send("orders", {"order": 7})
        for path, methods in document(needs_login=False)["paths"].items():
            for method, one in methods.items():
                for body in ({}, {"json": ["wrong"]}, {"content": b"<wrong>", "headers": {"Content-Type": "text/xml"}}):
                    answer = await _ask(api, method.upper(), path, one, body)
                    listed = f"{method} {path} answered {answer.status_code}: {answer.text[:200]}"
                    assert str(answer.status_code) in one["responses"], listed


async def _ask(api: Api, method: str, path: str, one: dict[str, Any], body: dict[str, Any]) -> httpx.Response:
    parameters = one.get("parameters", ())
    for parameter in parameters:
        path = path.replace(f"{{{parameter['name']}}}", quote(str(parameter["example"]), safe=""))
    if "requestBody" in one and not body:
        kind, content = next(iter(one["requestBody"]["content"].items()))
        example = content["example"]
        written = example.encode() if isinstance(example, str) else msgspec.json.encode(example)
        body = {"content": written, "headers": {"Content-Type": kind}}
    query = {each["name"]: each["example"] for each in parameters if each["in"] == "query"}
    return await api.client.request(method, path, params=query, **({} if method == "GET" else body))


def test_errors_have_examples_that_are_problem_documents() -> None:
    responses = dict(document()["components"]["responses"])
    del responses["Problem"]
    for one in responses.values():
        (content,) = one["content"].values()
        problem = msgspec.json.decode(msgspec.json.encode(content["example"]), type=ProblemDocument)
        assert one["description"].endswith(".")
        assert problem.title.replace(" ", "") in responses


def _references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if "$ref" in value else []
        return own + [one for part in value.values() for one in _references(part)]
    return [one for part in value for one in _references(part)] if isinstance(value, list) else []


# The edges of every value are tried where bodies and queries have most to say.
EDGES = ["send", "receive", "settle", "nak", "extend", "declare", "seek", "redrive", "dead_letters", "put_schedule"]
WAYS = {
    # What a schema can say is said: with nothing left out, all that fits it is accepted.
    "streams": ["--phases", "fuzzing", "--max-examples", "20", "--include-operation-id", "send_stream"],
    "all operations": ["--phases", "fuzzing", "--max-examples", "2"],
    "edges": ["--phases", "coverage", *(word for name in EDGES for word in ("--include-operation-id", name))],
}


@pytest.mark.slow
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
        words += ["--seed", str(SEED), "--warnings", "off", "--request-timeout", "60"]
        words += [] if way == "streams" else ["--exclude-checks", LEFT_OUT]
        words += ["--generation-database", "none", "--output-truncate", "true"]
        done = subprocess.run([program, *words], capture_output=True, text=True, timeout=360, cwd=tmp_path)
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
        tested = {"edges": len(EDGES), "streams": 1}.get(way, len(OPERATIONS))
        assert f"Tested: {tested}" in done.stdout
        assert server.is_alive()
        assert "incident" not in server.said()
