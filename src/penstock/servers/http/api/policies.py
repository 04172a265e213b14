"""The body that changes a queue's policy, made from the domain's table of policy fields."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from penstock.domain.policy import FIELDS, PolicyField
from penstock.servers.http.api.inputs import Input
from penstock.servers.http.api.values import Name, whole


def _type(field: PolicyField) -> Any:
    """The JSON type of a field with its bounds and its description."""
    kind: Any = bool
    if field.kind == "name":
        kind = Name
    elif field.kind == "choice":
        kind = Literal[field.choices]
    elif field.kind == "integer":
        kind = whole(int(field.minimum or 0), int(field.maximum or 0), field.description)
    elif field.kind != "boolean":
        bounds: dict[str, Any] = {"gt" if field.excludes_minimum else "ge": field.minimum, "le": field.maximum}
        kind = Annotated[float, Meta(**bounds)]
    optional = kind | None if field.is_nullable else kind
    return Annotated[optional | UnsetType, Meta(description=field.description)]


if TYPE_CHECKING:
    PolicyChanges = Input
else:
    PolicyChanges = msgspec.defstruct(
        "PolicyChanges",
        [(field.name, _type(field), UNSET) for field in FIELDS.values()],
        bases=(Input,),
        namespace={
            "__doc__": "Fields to set; those left out keep their value.",
            "wholes": tuple(field.name for field in FIELDS.values() if field.kind == "integer"),
        },
        frozen=True,
        kw_only=True,
        forbid_unknown_fields=True,
    )


def given_fields(changes: PolicyChanges) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(changes).items() if value is not UNSET}
