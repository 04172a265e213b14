"""OpenTelemetry spans by the messaging conventions, with the trace carried in headers. Needs the extra `tracing`.

A traced store makes a span for every send and puts its context into the message (`traceparent`, `tracestate`,
`baggage`); a worker on a traced store makes a span for every call of a handler. The span of a single message is a child
of the span that sent it, so that one trace shows both, and is linked to it as well; with `parents=False` it is only
linked. A batch is linked to all its messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from opentelemetry import context, propagate, trace
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

from penstock.client.tracing import Finish
from penstock.client.view import DeliveryView
from penstock.domain.message import Draft, decode_headers
from penstock.domain.settlement import Signal

SCHEMA = "https://opentelemetry.io/schemas/1.44.0"
SYSTEM = "penstock"


class SpanTracing:
    def __init__(self, provider: Any, parents: bool) -> None:
        self._tracer = trace.get_tracer("penstock", schema_url=SCHEMA, tracer_provider=provider)
        self._parents = parents

    # -- send ------------------------------------------------------------------------------------------------------

    def sending(self, queue: str, drafts: list[Draft]) -> tuple[list[Draft], Finish]:
        """Start the span of a send. A single message carries its context; of several, each carries the context of a
        child span of its own."""
        single = len(drafts) == 1
        attributes = _attributes("send", "send", queue)
        if not single:
            attributes["messaging.batch.message_count"] = len(drafts)
        kind = SpanKind.PRODUCER if single else SpanKind.CLIENT
        span = self._tracer.start_span(f"send {queue}", kind=kind, attributes=attributes)
        inside = trace.set_span_in_context(span)
        if single:
            carried = [_with_context(drafts[0], inside)]
        else:
            carried = [_with_context(draft, self._create_context(queue, inside)) for draft in drafts]

        def finish(ids: list[str] | None, error: BaseException | None) -> None:
            if single and ids:
                span.set_attribute("messaging.message.id", ids[0])
            if error is not None:
                _set_error(span, error)
            span.end()

        return carried, finish

    def _create_context(self, queue: str, inside: Any) -> Any:
        span = self._tracer.start_span(
            f"create {queue}", context=inside, kind=SpanKind.PRODUCER, attributes=_attributes("create", "create", queue)
        )
        span.end()
        return trace.set_span_in_context(span)

    # -- handling --------------------------------------------------------------------------------------------------

    def wrapped(self, call: Callable[..., Any], is_async: bool) -> Callable[..., Any]:
        """Wrap the call of a handler in a span."""

        def several_of(given: Any) -> list[DeliveryView]:
            return given if isinstance(given, list) else [given]

        if is_async:

            async def run_async(given: Any, *more: Any) -> Any:
                with self._processing(several_of(given)):
                    return await call(given, *more)

            return run_async

        def run(given: Any, *more: Any) -> Any:
            with self._processing(several_of(given)):
                return call(given, *more)

        return run

    @contextmanager
    def _processing(self, several: list[DeliveryView]) -> Iterator[None]:
        first = several[0]
        contexts = [propagate.extract(delivery.headers) for delivery in several]
        links = [Link(one) for one in map(_span_context, contexts) if one.is_valid]
        attributes = _attributes("process", "process", first.queue)
        attributes["messaging.consumer.group.name"] = first.group
        attributes["messaging.client.id"] = first.consumer
        if len(several) == 1:
            attributes["messaging.message.id"] = first.id
            attributes["messaging.message.body.size"] = len(first.payload)
        else:
            attributes["messaging.batch.message_count"] = len(several)
        parent = contexts[0] if self._parents and len(several) == 1 else context.Context()
        span = self._tracer.start_span(
            f"process {first.queue}", context=parent, kind=SpanKind.CONSUMER, attributes=attributes, links=links
        )
        token = context.attach(trace.set_span_in_context(span, parent))
        try:
            yield
        except BaseException as error:
            if not isinstance(error, Signal):
                _set_error(span, error)
            raise
        finally:
            context.detach(token)
            span.end()


def _attributes(name: str, kind: str, queue: str) -> dict[str, Any]:
    return {
        "messaging.system": SYSTEM,
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
        "messaging.destination.name": queue,
    }


def _with_context(draft: Draft, inside: Any) -> Draft:
    payload, content_type, options = draft
    headers = decode_headers(options.headers)
    propagate.inject(headers, context=inside)
    if not headers:
        return draft
    return payload, content_type, msgspec.structs.replace(options, headers=msgspec.json.encode(headers).decode())


def _span_context(inside: Any) -> Any:
    return trace.get_current_span(inside).get_span_context()


def _set_error(span: Any, error: BaseException) -> None:
    span.set_attribute("error.type", type(error).__qualname__)
    span.set_status(Status(StatusCode.ERROR, str(error)))
