"""Decode request bodies and query parameters. Every error names the place, the value and the nearest valid name."""

from __future__ import annotations

import inspect
import math
import re
import types
import typing
from collections.abc import Callable, Iterator
from datetime import datetime
from enum import Enum
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from penstock.domain.validation import nearest, shown
from penstock.servers.http.api.validation_errors import bound, refusal
from penstock.servers.http.bodies import JSON, content_type
from penstock.servers.http.problems import Problem
from penstock.servers.http.request import HttpRequest

PLAIN_JSON = JSON.encode()
# A prefix of the decoder's messages that our sentence replaces.
MALFORMED = "JSON is malformed: "
UNKNOWN = re.compile(r"unknown field `(?P<name>.*?)`(?P<at> - at `\$(?P<place>[^`]*)`)?", re.DOTALL)
NUMBER = re.compile(r"\[[0-9]+\]")
NO_CHOICE = re.compile(r"Invalid enum value '?(?P<value>.*?)'? - at `\$\.(?P<path>[^`]*)`", re.DOTALL)


class Body:
    """A JSON body. It is optional if all its fields are."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        self._decode = msgspec.json.Decoder(kind).decode
        self._fields: dict[str, list[str]] = {}
        for place, name in sorted(set(_fields(kind))):
            self._fields.setdefault(place, []).append(name)
        self._choices = dict(_choices(kind))
        self.is_optional = _needs_nothing(kind)

    async def read(self, request: HttpRequest) -> Any:
        body = await request.body()
        if not body and self.is_optional:
            return self.kind()
        if request.fields.get(b"content-type") == PLAIN_JSON:
            return self.decode(body)
        kind = content_type(request)
        if kind != JSON and not kind.endswith("+json"):
            raise Problem(415, f"the body must be JSON (Content-Type: {JSON}), not {shown(kind)}", "WrongContentType")
        return self.decode(body)

    def decode(self, body: bytes, where: str = "the body") -> Any:
        try:
            body.decode()
            return self._decode(body)
        except UnicodeDecodeError as error:
            raise Problem(400, f"{where} is not UTF-8 at byte {error.start}", "MalformedJson") from None
        except msgspec.ValidationError as error:
            raise self._refusal(str(error), where, body) from None
        except msgspec.DecodeError as error:
            fault = _lower_first(str(error).removeprefix(MALFORMED))
            raise Problem(400, f"{where} is not JSON: {fault}", "MalformedJson") from None
        except RecursionError:
            raise Problem(400, f"{where} is nested too deeply", "MalformedJson") from None

    def _refusal(self, message: str, where: str, body: bytes) -> Problem:
        chosen = NO_CHOICE.fullmatch(message)
        if chosen is not None and chosen["path"] in self._choices:
            words = self._choices[chosen["path"]]
            like = nearest(chosen["value"], words)
            detail = f"{chosen['path']} must be one of {', '.join(words)}, not {shown(chosen['value'])}{like}"
            return Problem(400, f"{where}: {detail}", "InvalidInput")
        found = UNKNOWN.search(message)
        if found is None:
            detail = refusal(message, body) or _lower_first(message)
            return Problem(400, detail if detail.startswith(where) else f"{where}: {detail}", "InvalidInput")
        like = self._hint(found["name"], NUMBER.sub("[...]", found["place"] or ""))
        detail = f"unknown field {shown(found['name'])}{like}{found['at'] or ''}"
        return Problem(400, f"{where}: {detail}", "UnknownField")

    def _hint(self, name: str, place: str) -> str:
        """What helps who has given a field that its object does not have."""
        if not self._fields:
            return ": this call takes none"
        for other, names in self._fields.items():
            if name in names:
                return f": it is a field of {other.removeprefix('.') or 'the body itself'}"
        return nearest(name, self._fields.get(place, []))


def _fields(kind: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """The fields that a value of this kind may have, at any depth: the path of their object, and their name."""
    if inspect.isclass(kind) and issubclass(kind, msgspec.Struct):
        for field in msgspec.structs.fields(kind):
            yield place, field.encode_name
            yield from _fields(field.type, f"{place}.{field.encode_name}")
    inner = place + "[...]" if get_origin(kind) in (list, dict) else place
    for part in get_args(kind):
        yield from _fields(part, inner)


def _choices(kind: Any) -> Iterator[tuple[str, list[str]]]:
    """The allowed words of enumerated fields of the body, by field."""
    if inspect.isclass(kind) and issubclass(kind, msgspec.Struct):
        for field in msgspec.structs.fields(kind):
            for part in (field.type, *get_args(field.type)):
                if get_origin(part) is Literal:
                    yield field.encode_name, [str(word) for word in get_args(part)]
                elif inspect.isclass(part) and issubclass(part, Enum):
                    yield field.encode_name, [str(one.value) for one in part]


def _needs_nothing(kind: Any) -> bool:
    if not (inspect.isclass(kind) and issubclass(kind, msgspec.Struct)):
        return False
    return not getattr(kind, "either", ()) and not any(field.required for field in msgspec.structs.fields(kind))


def _lower_first(sentence: str) -> str:
    if sentence[1:2].isupper():  # an acronym
        return sentence
    return sentence[:1].lower() + sentence[1:]


# -- the query -------------------------------------------------------------------------------------------------------


class QueryValue:
    """A query parameter: converts its text to a number, a time or an enumerated word."""

    def __init__(self, name: str, kind: Any, default: Any) -> None:
        self.name = name
        self.kind = kind
        self.default = default
        self.is_required = default is inspect.Parameter.empty
        self._checked = given(kind)
        self._read, self._wanted = _reader(kind)

    def read(self, text: str | None) -> Any:
        if text is None:
            if self.is_required:
                raise Problem(400, f"the parameter {self.name} is missing", "InvalidQuery")
            return self.default
        try:
            value = self._read(text)
        except (ValueError, msgspec.ValidationError):
            raise Problem(400, f"{self.name} must be {self._wanted}, not {shown(text)}", "InvalidInput") from None
        try:
            return msgspec.convert(value, self._checked)
        except msgspec.ValidationError as error:
            limit = bound(str(error))
            detail = f" {shown(text)}: {_lower_first(str(error))}" if limit is None else f" must be {limit}, not {text}"
            raise Problem(400, self.name + detail, "InvalidInput") from None


def _reader(kind: Any) -> tuple[Callable[[str], Any], str]:
    kind = _plain(kind)
    if kind is bool:
        return _read_bool, "true or false"
    if kind is int:
        return _read_int, "a whole number"
    if kind is float:
        return _read_float, "a number"
    if kind is datetime:
        return lambda text: msgspec.convert(text, datetime), "a time such as 2026-01-31T12:00:00Z"
    if inspect.isclass(kind) and issubclass(kind, Enum):
        return kind, "one of " + ", ".join(str(one.value) for one in kind)
    if get_origin(kind) is Literal:
        words = get_args(kind)
        return lambda text: msgspec.convert(text, kind), "one of " + ", ".join(map(str, words))
    assert kind is str, kind
    return str, "text"


def given(kind: Any) -> Any:
    """The type without None: a parameter that is None is left out."""
    if get_origin(kind) in (Union, types.UnionType):
        left = [part for part in get_args(kind) if part is not type(None)]
        return left[0] if len(left) == 1 else kind
    return kind


def _plain(kind: Any) -> Any:
    """The type without None and without annotations."""
    kind = given(kind)
    if get_origin(kind) in (Union, types.UnionType):
        return int  # an integer that JSON may write as 7.0; a query may not
    return _plain(get_args(kind)[0]) if get_origin(kind) is Annotated else kind


def _read_bool(text: str) -> bool:
    return {"true": True, "false": False}[text] if text in ("true", "false") else _refuse()


def _refuse() -> typing.NoReturn:
    raise ValueError


def _read_int(text: str) -> int:
    # Python also accepts underscores, blanks and digits of other scripts.
    return int(text) if re.fullmatch(r"-?[0-9]{1,18}", text) else _refuse()


def _read_float(text: str) -> float:
    number = float(text) if re.fullmatch(r"-?[0-9.eE+-]{1,40}", text) else _refuse()
    return number if math.isfinite(number) else _refuse()
