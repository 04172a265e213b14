"""Request bodies as structs: unknown fields are refused, and rules that types cannot express are checked."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
from msgspec import UNSET


class Input(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Exactly one of the fields in `either` must be given. `wholes` are integers, which JSON may write as 7.0."""

    either: ClassVar[tuple[str, ...]] = ()
    wholes: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for name in self.wholes:
            value = getattr(self, name)
            if type(value) is float:
                if not value.is_integer():
                    raise ValueError(f"{name} must be a whole number, not {value}")
                msgspec.structs.force_setattr(self, name, int(value))
        count = 0
        for name in self.either:
            count += getattr(self, name) is not UNSET
        if self.either and count != 1:
            raise ValueError(f"exactly one of {' and '.join(self.either)} must be given")


class Nothing(Input, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """For an operation without a body: fields are refused, because they would have no effect."""


def all_inputs(kind: Any = Input) -> list[type[Input]]:
    return [one for child in kind.__subclasses__() for one in (child, *all_inputs(child))]
