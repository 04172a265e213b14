"""How a handler is called, read from its signature.

The first parameter decides. Without an annotation, or annotated `penstock.Delivery`, it gets the delivery. Annotated
with anything else, or named `payload`, it gets the payload, decoded to that type: `bytes` as it was sent, `dict`,
`list`, a dataclass, a TypedDict, a msgspec or pydantic model from JSON. A handler with two parameters gets both. A
handler of batches gets lists: `list[Delivery]`, or `list[Order]` for payloads.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, get_args, get_origin

import msgspec

from penstock.client.view import DeliveryView
from penstock.domain.errors import InvalidInput
from penstock.domain.message import JSON
from penstock.domain.settlement import Reject
from penstock.domain.validation import shown
from penstock.workers.forks import ends_copies

PAYLOAD = "payload"
EMPTY = inspect.Parameter.empty
POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
Decode = Callable[[DeliveryView], Any]


class HandlerSignature(NamedTuple):
    """`call` takes a delivery; for batches, a list of deliveries and a list of payloads, which `decode` makes one by
    one so that an invalid payload does not affect the others. The result of an `async def` must be awaited."""

    call: Callable[..., Any]
    is_async: bool
    decode: Decode | None = None


def read_signature(function: Callable[..., Any], where: str, is_batch: bool) -> HandlerSignature:
    """How to call the function; `where` says in errors which handler is meant."""
    if not callable(function):
        raise InvalidInput(f"{where} must be a function, not {shown(function)}")
    if inspect.isgeneratorfunction(_inner(function)) or inspect.isasyncgenfunction(_inner(function)):
        raise InvalidInput(f"{where} is a generator: it would return before it has done anything; use return")
    decoders = [_decoder(parameter, where, is_batch) for parameter in _parameters(function, where)]
    _check_pair(decoders, where)
    is_async = inspect.iscoroutinefunction(_inner(function))
    if is_batch:
        decode = next((decode for decode in decoders if decode is not None), None)
        return HandlerSignature(ends_copies(_batch_caller(function, decoders), is_async), is_async, decode)
    return HandlerSignature(ends_copies(_caller(function, decoders), is_async), is_async)


def named(function: Callable[..., Any]) -> str:
    """The name of a handler for people."""
    inner = _inner(function)
    return getattr(inner, "__qualname__", None) or type(inner).__qualname__


def _inner(function: Any) -> Any:
    """The function behind partials, decorators with `__wrapped__`, and callable objects."""
    while isinstance(function, partial):
        function = function.func
    function = inspect.unwrap(function)
    is_plain = inspect.isroutine(function) or inspect.isclass(function)
    return function if is_plain else type(function).__call__


def _parameters(function: Callable[..., Any], where: str) -> list[inspect.Parameter]:
    try:
        every = inspect.signature(function, eval_str=True).parameters.values()
    except (NameError, AttributeError, SyntaxError) as error:
        raise InvalidInput(f"{where} has an annotation that cannot be read: {error}") from None
    except (TypeError, ValueError):  # builtins without a signature get the delivery
        return [inspect.Parameter("delivery", inspect.Parameter.POSITIONAL_ONLY)]
    needed = [one for one in every if one.default is EMPTY and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    positional = [one for one in every if one.kind in POSITIONAL]
    wanted = [one for one in needed if one in positional] or positional[:1]
    if not wanted and any(one.kind is one.VAR_POSITIONAL for one in every):
        return [inspect.Parameter("delivery", inspect.Parameter.POSITIONAL_ONLY)]
    keywords = [one.name for one in needed if one not in positional]
    if keywords:
        raise InvalidInput(f"{where} needs {', '.join(keywords)}, which nobody gives it: a default would do")
    if not 1 <= len(wanted) <= 2:
        takes = "nothing" if not wanted else ", ".join(one.name for one in wanted)
        raise InvalidInput(f"{where} takes {takes}: it is called with the delivery, with its payload, or with both")
    return wanted


def _decoder(parameter: inspect.Parameter, where: str, is_batch: bool) -> Decode | None:
    """The decoder of a parameter; None for one that gets the delivery itself."""
    wanted = parameter.annotation
    if is_batch and wanted is not EMPTY:
        wanted = _element(wanted, where)
    if wanted in (EMPTY, Any):
        return _decode_any if parameter.name in (PAYLOAD, f"{PAYLOAD}s") else None
    if inspect.isclass(wanted) and issubclass(wanted, DeliveryView):
        return None
    return _typed(wanted, where)


def _element(wanted: Any, where: str) -> Any:
    """The element type of a list annotation."""
    if wanted in (list, Sequence, Any):
        return Any
    if get_origin(wanted) not in (list, Sequence):
        raise InvalidInput(f"{where} gets batches: annotate it with a list, such as list[Delivery], not {wanted!r}")
    return get_args(wanted)[0]


def _decode_any(delivery: DeliveryView) -> Any:
    return delivery.json() if delivery.content_type == JSON else delivery.payload


def _typed(wanted: Any, where: str) -> Decode:
    if wanted is bytes:
        return lambda delivery: delivery.payload
    validate = getattr(wanted, "model_validate_json", None)  # pydantic's way
    if validate is None:
        try:
            validate = msgspec.json.Decoder(wanted).decode
        except TypeError as error:
            raise InvalidInput(f"{where} is annotated with a type that no payload can be made into: {error}") from None

    def decode(delivery: DeliveryView) -> Any:
        if wanted is str and delivery.content_type != JSON:
            return delivery.payload.decode(errors="replace")
        try:
            return validate(delivery.payload)
        except Exception as error:
            # A retry would fail in the same way.
            raise Reject(f"the payload does not fit {_spelled(wanted)}: {error}") from error

    return decode


def _spelled(wanted: Any) -> str:
    return wanted.__name__ if inspect.isclass(wanted) and not get_args(wanted) else str(wanted)


def _check_pair(decoders: list[Decode | None], where: str) -> None:
    if len(decoders) == 2 and (decoders[0] is None) is (decoders[1] is None):
        raise InvalidInput(
            f"{where} takes two arguments: one must be the payload (annotate its type, or name it `payload`) and the "
            "other the delivery"
        )


def _caller(function: Callable[..., Any], decoders: list[Decode | None]) -> Callable[[Any], Any]:
    if decoders == [None]:
        return function
    if len(decoders) == 1:
        (only,) = decoders
        assert only is not None
        return lambda delivery: function(only(delivery))
    return lambda delivery: function(*(delivery if one is None else one(delivery) for one in decoders))


def _batch_caller(function: Callable[..., Any], decoders: list[Decode | None]) -> Callable[[Any, Any], Any]:
    if len(decoders) == 2:
        return lambda several, payloads: function(*(several if one is None else payloads for one in decoders))
    return lambda several, payloads: function(several if decoders[0] is None else payloads)
