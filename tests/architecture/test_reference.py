"""Reference pages, schemas and SQL functions agree with the tables of the domain."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

from penstock.domain import reasons
from penstock.domain.policy import FIELDS, Policy, PolicyField
from penstock.servers.http.api.openapi import document
from penstock.servers.http.dashboard.pages.policy import fields_of
from scripts import reference
from tests.architecture.sources import sql_files


def test_reference_pages_are_up_to_date() -> None:
    stale = reference.differences()
    assert not stale, "\n".join(["run scripts/reference.py", *stale])


@pytest.mark.parametrize("field", FIELDS.values(), ids=FIELDS)
def test_http_schema_has_the_type_and_bounds_of_the_field(field: PolicyField) -> None:
    properties = document()["components"]["schemas"]["PolicyChanges"]["properties"]
    assert set(properties) == set(FIELDS)
    schema = properties[field.name]
    parts = schema.get("anyOf", [schema])
    assert ({"type": "null"} in parts) is field.is_nullable
    assert _described(next(part for part in parts if part.get("type") != "null")) == _expected(field)
    assert schema["description"] == field.description


def _described(schema: dict[str, Any]) -> dict[str, Any]:
    """The part of a JSON schema that restricts values."""
    words = ("type", "minimum", "exclusiveMinimum", "maximum", "enum", "maxLength")
    return {word: schema[word] for word in words if word in schema}


def _expected(field: PolicyField) -> dict[str, Any]:
    if field.kind == "boolean":
        return {"type": "boolean"}
    if field.kind == "choice":
        return {"enum": sorted(field.choices)}
    if field.kind == "name":
        return {"type": "string", "maxLength": 255}
    return {
        "type": "integer" if field.kind == "integer" else "number",
        "exclusiveMinimum" if field.excludes_minimum else "minimum": field.minimum,
        "maximum": field.maximum,
    }


def test_dashboard_form_has_every_field_but_paused() -> None:
    """Pausing has a button of its own."""
    shown = {one["name"]: one["kind"] for one in fields_of(Policy())}
    assert shown == {name: field.kind for name, field in FIELDS.items() if name != "paused"}


def test_keywords_of_a_policy_have_the_types_of_the_table() -> None:
    from penstock import PolicyFields

    assert list(inspect.get_annotations(PolicyFields)) == list(FIELDS)


def test_sql_functions_give_the_reasons_of_the_domain() -> None:
    functions = "\n".join(path.read_text(encoding="utf-8") for path in sql_files() if "functions" in path.parts)
    functions = re.sub(r"'\n\s*'", "", functions)
    texts = [text for name, text in vars(reasons).items() if name.isupper() and isinstance(text, str)]
    assert len(texts) > 5
    for text in [*texts, *reasons.OF_EVENT.values()]:
        assert f"'{text.replace('{}', '%s')}'" in functions, text
