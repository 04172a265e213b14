"""Help without the types of parameters, and with square brackets printed literally instead of read as markup."""

from __future__ import annotations

from typing import Any

from rich.markup import escape
from typer.core import TyperCommand, TyperGroup


class PlainCommand(TyperCommand):
    def __init__(self, *values: Any, **named: Any) -> None:
        super().__init__(*values, **named)
        _escape_texts(self)

    def get_params(self, ctx: Any) -> list[Any]:
        return _untyped(super().get_params(ctx))


class PlainGroup(TyperGroup):
    def __init__(self, *values: Any, **named: Any) -> None:
        super().__init__(*values, **named)
        _escape_texts(self)

    def get_params(self, ctx: Any) -> list[Any]:
        return _untyped(super().get_params(ctx))


def _escape_texts(command: TyperCommand | TyperGroup) -> None:
    """Escape all texts that typer passes to rich as markup: those of commands and parameters, and panel titles."""
    for one in (command, *command.params):
        for name in ("help", "short_help", "epilog", "rich_help_panel"):
            text = getattr(one, name, None)
            if isinstance(text, str):
                setattr(one, name, escape(text))


def _untyped(parameters: list[Any]) -> list[Any]:
    for one in parameters:
        if one.param_type_name == "argument" or one.is_flag:
            one.display_type_rich = _nothing
    return parameters


def _nothing(ctx: object) -> None:
    return None
