"""The engine contract: every verb of the model, one sentence each, naming the transition it makes.

An engine is blocking and may be used from several threads. Every verb is one transaction: it takes effect wholly or not
at all, and is durable when it returns (a receive may be lost by a power cut where that only means a redelivery; an
`at_most_once` receive may not). Values arrive checked (`domain`): an engine checks only against its own state. Time is
the engine's own clock, never the caller's. Engines raise the errors of `domain.errors` and no others.

The contract is `QueueContract`, which every engine implements, and facets, one module each. An engine is one object
with the methods of `QueueContract` and of the facets that its `Capabilities` name; the test run prints them."""

from __future__ import annotations

from typing import Protocol

from penstock.engines.contract.administration import AdministrationContract
from penstock.engines.contract.batches import BatchContract
from penstock.engines.contract.capabilities import EVERY_FACET, Capabilities, Facet
from penstock.engines.contract.inspection import InspectionContract
from penstock.engines.contract.ledger import LedgerContract
from penstock.engines.contract.queue import Edge, Operation, QueueContract
from penstock.engines.contract.receipt import (
    ADDRESS,
    ATTEMPT,
    BATCH,
    CONTENT_TYPE,
    CREATED_AT,
    CREATED_BY,
    DEADLINE_AT,
    EXPIRES_AT,
    HEADERS,
    ID,
    KEY,
    LEASE_ENDS_AT,
    PAYLOAD,
    POSITION,
    PRIORITY,
    Receipt,
    Row,
)
from penstock.engines.contract.schedules import ScheduleContract
from penstock.engines.contract.sink import SinkContract
from penstock.engines.contract.streams import StreamContract
from penstock.engines.contract.windows import Mark, Table, WindowContract

__all__ = [
    "ADDRESS",
    "ATTEMPT",
    "BATCH",
    "CONTENT_TYPE",
    "CREATED_AT",
    "CREATED_BY",
    "DEADLINE_AT",
    "EVERY_FACET",
    "EXPIRES_AT",
    "HEADERS",
    "ID",
    "KEY",
    "LEASE_ENDS_AT",
    "PAYLOAD",
    "POSITION",
    "PRIORITY",
    "Capabilities",
    "Edge",
    "Engine",
    "Facet",
    "Mark",
    "Operation",
    "Receipt",
    "Row",
    "Table",
]


class Engine(
    QueueContract,
    BatchContract,
    ScheduleContract,
    InspectionContract,
    AdministrationContract,
    StreamContract,
    WindowContract,
    SinkContract,
    LedgerContract,
    Protocol,
):  # one flat object: call sites need not know which facet a method belongs to
    """One database that holds queues, with every facet."""
