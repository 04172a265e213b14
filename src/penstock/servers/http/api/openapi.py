"""The OpenAPI 3.1 document, generated from the table of operations."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

import penstock
from penstock.servers.access import Right
from penstock.servers.http.api import error_responses
from penstock.servers.http.api.decoder import QueryValue, given
from penstock.servers.http.api.error_responses import component_name
from penstock.servers.http.api.examples import Examples
from penstock.servers.http.api.inputs import all_inputs
from penstock.servers.http.api.operations import OPERATIONS, PREFIX, ApiOperation
from penstock.servers.http.bodies import JSON
from penstock.servers.http.problems import CONTENT_TYPE, ProblemDocument
from penstock.servers.http.router import Route
from penstock.servers.http.state import http_state

BYTES = "application/octet-stream"
REF = "#/components/schemas/{name}"
SCHEMES = {
    "token": {"type": "http", "scheme": "bearer", "description": "made by `penstock serve --make-token`"},
    "password": {"type": "http", "scheme": "basic"},
}


async def serve(request: Request) -> Response:
    needs_login = http_state(request).users.need_password
    return Response(msgspec.json.encode(document(request.scope.get("root_path", ""), needs_login)), media_type=JSON)


DOCUMENT_ROUTE = Route("GET", f"{PREFIX}/openapi.json", serve, Right.NOTHING)


def document(root_path: str = "", needs_login: bool = True) -> dict[str, Any]:
    schemas = _Schemas(OPERATIONS)
    paths: dict[str, dict[str, Any]] = {}
    for one in OPERATIONS:
        paths.setdefault(one.pattern, {})[one.method.lower()] = _operation(one, schemas, needs_login)
    problem = schemas.of(ProblemDocument)
    components: dict[str, Any] = {
        "schemas": schemas.components,
        "responses": {**error_responses.responses(problem), "Problem": _problem(problem)},
    }
    result: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "Penstock",
            "version": penstock.__version__,
            "description": "A message queue that lives in the database you already have.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": root_path or "/"}],
        "tags": [{"name": tag} for tag in dict.fromkeys(one.tag for one in OPERATIONS)],
        "paths": paths,
        "components": components,
    }
    if needs_login:
        components["securitySchemes"] = SCHEMES
        result["security"] = [{"token": []}, {"password": []}]
    return result


class _Schemas:
    """The schemas of all types in the table."""

    def __init__(self, operations: list[ApiOperation]) -> None:
        kinds: list[Any] = [ProblemDocument]
        for one in operations:
            kinds += one.values.values()
            kinds += [given(value.kind) for value in one.query.values()]
            kinds += [] if one.body is None else [one.body.kind]
            kinds += [] if one.returns is bytes else [one.returns]
        schemas, self.components = msgspec.json.schema_components(kinds, ref_template=REF)
        self._schemas = list(zip(kinds, schemas, strict=True))
        for kind in all_inputs():
            if kind.either and kind.__name__ in self.components:
                self.components[kind.__name__]["oneOf"] = [{"required": [name]} for name in kind.either]
        self.examples = Examples(self.components)

    def of(self, kind: Any) -> dict[str, Any]:
        return next(dict(schema) for known, schema in self._schemas if known is kind or known == kind)


def _operation(one: ApiOperation, schemas: _Schemas, needs_login: bool) -> dict[str, Any]:
    summary, _, rest = one.description.partition("\n\n")
    result: dict[str, Any] = {
        "operationId": one.name,
        "tags": [one.tag],
        "summary": summary.replace("\n", " "),
        "description": f"{rest.strip()}\n\nNeeds the right to {one.right.value}.".strip(),
        "responses": {**_responses(one, schemas), **_errors(one, needs_login)},
    }
    parameters = [
        *(_parameter(name, "path", schemas, schemas.of(kind), True) for name, kind in one.values.items()),
        *(_query(value, schemas) for value in one.query.values()),
    ]
    if parameters:
        result["parameters"] = parameters
    body = _body(one, schemas)
    return result if body is None else {**result, "requestBody": body}


def _body(one: ApiOperation, schemas: _Schemas) -> dict[str, Any] | None:
    if one.body is not None:
        schema = schemas.of(one.body.kind)
        example = schemas.examples.of(schema, is_request=True)
        return {"required": not one.body.is_optional, "content": {JSON: {"schema": schema, "example": example}}}
    if one.media_type == JSON:
        return None
    content = {"schema": {"type": "string"}, "example": LINES if one.is_streamed else "any bytes"}
    # A request without a body has no content type: a stream needs one, a raw message is empty without.
    return {"required": one.is_streamed, "content": dict.fromkeys((one.media_type, BYTES), content)}


LINES = '{"payload": {"order": 7}}\n{"payload": {"order": 8}, "priority": 1}\n'


def _query(value: QueryValue, schemas: _Schemas) -> dict[str, Any]:
    schema = schemas.of(given(value.kind))
    if value.default is not None and not value.is_required:
        schema["default"] = value.default
    return _parameter(value.name, "query", schemas, schema, value.is_required)


def _parameter(name: str, where: str, schemas: _Schemas, schema: dict[str, Any], is_required: bool) -> dict[str, Any]:
    result = {"name": name, "in": where, "required": is_required, "schema": schema}
    if "description" in schema:
        result["description"] = schema.pop("description")
    return {**result, "example": schemas.examples.of(schema, name)}


def _responses(one: ApiOperation, schemas: _Schemas) -> dict[str, Any]:
    if one.returns is bytes:
        content = {BYTES: {"schema": {"type": "string", "format": "binary"}}}
    else:
        schema = schemas.of(one.returns)
        content = {JSON: {"schema": schema, "example": schemas.examples.of(schema)}}
    return {str(status): {"description": "done", "content": content} for status in (one.status, *one.also)}


def _errors(one: ApiOperation, needs_login: bool) -> dict[str, Any]:
    listed = {str(status): component_name(status) for status in error_responses.statuses(one, needs_login)}
    return {
        status: {"$ref": f"#/components/responses/{name}"} for status, name in {**listed, "default": "Problem"}.items()
    }


def _problem(schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "description": "what went wrong, and what would be right",
        "content": {CONTENT_TYPE: {"schema": schema}},
    }


def markdown() -> str:
    """The table of operations for docs/http.md."""
    lines = ["| | needs | |", "|---|---|---|"]
    for one in sorted(OPERATIONS, key=lambda one: (one.tag, one.pattern, one.method)):
        summary = one.description.partition("\n\n")[0].replace("\n", " ")
        lines.append(f"| `{one.method} {one.pattern.removeprefix(PREFIX)}` | {one.right.value} | {summary} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    import penstock.servers.http.api as _filled  # noqa: F401  # fills the table

    print(markdown(), end="")
