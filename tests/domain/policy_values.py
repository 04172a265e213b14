"""Values at and beyond the bounds of each policy field, made from the table."""

from __future__ import annotations

from penstock.domain.policy import PolicyField


def accepted(field: PolicyField) -> list[object]:
    """The outermost values that the field takes."""
    if field.kind == "boolean":
        values: list[object] = [True, False]
    elif field.kind == "choice":
        values = list(field.choices)
    elif field.kind == "name":
        values = ["g" * 255]
    else:
        assert field.minimum is not None
        values = [field.minimum + (0.001 if field.excludes_minimum else 0), field.maximum]
    return [*values, None] if field.is_nullable else values


def refused(field: PolicyField) -> list[object]:
    """Values of the wrong type, or just beyond the bounds."""
    values: list[object] = [[], {}]
    if not field.is_nullable:
        values.append(None)
    if field.kind == "boolean":
        return [*values, 0, "true"]
    if field.kind == "choice":
        return [*values, "", True, 0]
    if field.kind == "name":
        return [*values, "", "g" * 256, 7, True]
    assert field.minimum is not None
    assert field.maximum is not None
    if field.kind == "integer":
        values += [field.minimum + 0.5]
    return [*values, field.minimum - (0 if field.excludes_minimum else 1), field.maximum + 1, "7", True]
