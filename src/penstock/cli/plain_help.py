"""Help in the reader's words: arguments are called what they are, flags take nothing, no type of Python's is named."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup


class PlainCommand(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _untyped(super().get_params(ctx))


class PlainGroup(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        return _untyped(super().get_params(ctx))


def _untyped(parameters: list[Any]) -> list[Any]:
    for one in parameters:
        if one.param_type_name == "argument" or one.is_flag:
            one.display_type_rich = _nothing
    return parameters


def _nothing(ctx: object) -> None:
    return None
