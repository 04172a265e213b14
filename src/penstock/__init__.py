"""Penstock: one message queue that lives in the database you already have."""

import logging

from penstock.client.aio.connecting import connect_async
from penstock.client.aio.delivery import AsyncDelivery
from penstock.client.aio.store import AsyncStore
from penstock.client.batch import Batch
from penstock.client.connecting import connect
from penstock.client.consumer import Consumer
from penstock.client.delivery import Delivery
from penstock.client.producer import Producer
from penstock.client.queue import Queue
from penstock.client.store import Store
from penstock.domain.errors import (
    BatchClosed,
    ConsumerRemoved,
    DiskError,
    DuplicateAddress,
    EngineTooOld,
    GroupMisused,
    HandlerUnavailable,
    InvalidInput,
    InvalidName,
    InvalidPolicy,
    InvalidSchedule,
    InvalidUrl,
    LakeBusy,
    LeaseLost,
    LogDiverged,
    MessageFailed,
    MissingExtra,
    NotALake,
    NotAStore,
    NotFound,
    OutOfOrder,
    PayloadTooLarge,
    PenstockError,
    PipelineError,
    RangeTrimmed,
    Refused,
    SchemaMissing,
    SchemaTooNew,
    SparkUnavailable,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    WaitTimeout,
)
from penstock.domain.lifecycle import Event, State
from penstock.domain.message import Message, Outgoing
from penstock.domain.observations import (
    Archived,
    AuditEntry,
    BatchInfo,
    Check,
    ConsumerInfo,
    DeadLetter,
    Explanation,
    GroupStats,
    QueueInfo,
    Repair,
    SweepReport,
)
from penstock.domain.policy import Policy
from penstock.domain.recurrence import Schedule
from penstock.domain.settlement import Ack, Nak, Reject, Reschedule, Retry, Settled
from penstock.workers.app import App
from penstock.workers.tracing import trace
from penstock.workers.worker import Worker

__version__ = "0.1.0"

# A library is silent unless its program listens; dead letters are signalled to this logger's children.
logging.getLogger(__name__).addHandler(logging.NullHandler())

__all__ = [
    "Ack",
    "App",
    "Archived",
    "AsyncDelivery",
    "AsyncStore",
    "AuditEntry",
    "Batch",
    "BatchClosed",
    "BatchInfo",
    "Check",
    "Consumer",
    "ConsumerInfo",
    "ConsumerRemoved",
    "DeadLetter",
    "Delivery",
    "DiskError",
    "DuplicateAddress",
    "EngineTooOld",
    "Event",
    "Explanation",
    "GroupMisused",
    "GroupStats",
    "HandlerUnavailable",
    "InvalidInput",
    "InvalidName",
    "InvalidPolicy",
    "InvalidSchedule",
    "InvalidUrl",
    "LakeBusy",
    "LeaseLost",
    "LogDiverged",
    "Message",
    "MessageFailed",
    "MissingExtra",
    "Nak",
    "NotALake",
    "NotAStore",
    "NotFound",
    "OutOfOrder",
    "Outgoing",
    "PayloadTooLarge",
    "PenstockError",
    "PipelineError",
    "Policy",
    "Producer",
    "Queue",
    "QueueInfo",
    "RangeTrimmed",
    "Refused",
    "Reject",
    "Repair",
    "Reschedule",
    "Retry",
    "Schedule",
    "SchemaMissing",
    "SchemaTooNew",
    "Settled",
    "SparkUnavailable",
    "State",
    "Store",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreReadOnly",
    "StoreUnavailable",
    "SweepReport",
    "WaitTimeout",
    "Worker",
    "connect",
    "connect_async",
    "trace",
]
