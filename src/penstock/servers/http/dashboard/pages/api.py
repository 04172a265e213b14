"""The API reference for people, rendered from the OpenAPI document."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import Response

from penstock.servers.access import Right
from penstock.servers.http.api.openapi import document
from penstock.servers.http.dashboard.renderer import page
from penstock.servers.http.router import Route
from penstock.servers.http.state import http_state


class ParameterRow(NamedTuple):
    name: str
    where: str
    is_required: bool
    kind: str
    description: str


class Reply(NamedTuple):
    status: str
    description: str


class OperationEntry(NamedTuple):
    """One operation as the page shows it."""

    name: str
    tag: str
    method: str
    path: str
    summary: str
    description: str
    parameters: list[ParameterRow]
    body_type: str | None
    is_body_required: bool
    call: str
    answer: str | None
    replies: list[Reply]


async def show(request: Request) -> Response:
    needs_login = http_state(request).users.need_password
    api = document(request.scope.get("root_path", ""), needs_login)
    entries = list(_entries(api, str(request.base_url).rstrip("/")))
    tags = {tag["name"]: [one for one in entries if one.tag == tag["name"]] for tag in api["tags"]}
    return page(request, "api.html", tags=tags, prose=_prose)


def _prose(text: str) -> Markup:
    """Render words between backticks as code."""
    parts = [escape(part) for part in text.split("`")]
    return Markup("").join(Markup("<code>{}</code>").format(part) if n % 2 else part for n, part in enumerate(parts))


def _entries(api: dict[str, Any], base: str) -> Iterator[OperationEntry]:
    for path, methods in api["paths"].items():
        for method, one in methods.items():
            body = one.get("requestBody")
            yield OperationEntry(
                name=one["operationId"],
                tag=one["tags"][0],
                method=method.upper(),
                path=path,
                summary=one["summary"],
                description=one["description"],
                parameters=[_parameter(parameter) for parameter in one.get("parameters", ())],
                body_type=None if body is None else next(iter(body["content"])),
                is_body_required=body is not None and body["required"],
                call=_curl(method.upper(), base + path, one, "security" in api),
                answer=_answer(one),
                replies=list(_replies(one["responses"], api["components"]["responses"])),
            )


def _parameter(one: dict[str, Any]) -> ParameterRow:
    schema = one["schema"]
    kind = " | ".join(map(str, schema["enum"])) if "enum" in schema else schema.get("type", "any")
    return ParameterRow(one["name"], one["in"], one["required"], kind, one.get("description", ""))


def _curl(method: str, url: str, one: dict[str, Any], needs_login: bool) -> str:
    """A curl command for the operation, with its examples."""
    parameters = one.get("parameters", ())
    for parameter in parameters:
        if parameter["in"] == "path":
            url = url.replace(f"{{{parameter['name']}}}", quote(parameter["example"], safe=""))
    needed = {each["name"]: each["example"] for each in parameters if each["in"] == "query" and each["required"]}
    words = ["curl", url + (f"?{urlencode(needed)}" if needed else "")]
    if method != "GET":
        words[1:1] = ["-X", method]
    lines = [shlex.join(words)]
    if needs_login:
        lines.append('-H "Authorization: Bearer $TOKEN"')
    if "requestBody" in one:
        kind, content = next(iter(one["requestBody"]["content"].items()))
        example = content["example"]
        lines.append(shlex.join(["-H", f"Content-Type: {kind}"]))
        lines.append(shlex.join(["--data-binary", example if isinstance(example, str) else json.dumps(example)]))
    return " \\\n  ".join(lines)


def _answer(one: dict[str, Any]) -> str | None:
    (content,) = next(iter(one["responses"].values()))["content"].values()
    return json.dumps(content["example"], indent=2) if "example" in content else None


def _replies(responses: dict[str, Any], components: dict[str, Any]) -> Iterator[Reply]:
    for status, one in responses.items():
        if status == "default":
            yield Reply("others", "A problem document as well.")
        else:
            found = components[one["$ref"].rpartition("/")[2]] if "$ref" in one else one
            phrase = HTTPStatus(int(status)).phrase
            yield Reply(f"{status} {phrase}", found["description"] if "$ref" in one else "Done.")


ROUTES = [Route("GET", "/docs", show, Right.LOOK)]
