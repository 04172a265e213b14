"""Penstock: one message queue that lives in the database you already have."""

import logging

from penstock.client.aio.batch import AsyncBatch
from penstock.client.aio.connection import connect_async
from penstock.client.aio.consumer import AsyncConsumer
from penstock.client.aio.delivery import AsyncDelivery
from penstock.client.aio.producer import AsyncProducer
from penstock.client.aio.queue import AsyncQueue
from penstock.client.aio.store import AsyncStore
from penstock.client.batch import Batch
from penstock.client.connection import connect
from penstock.client.consumer import Consumer
from penstock.client.delivery import Delivery
from penstock.client.producer import Producer
from penstock.client.producer_batch import Gathered
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
from penstock.domain.message import Message, Outgoing, SendOptions
from penstock.domain.policy import Policy, PolicyFields
from penstock.domain.recurrence import Schedule, ScheduleOptions
from penstock.domain.results import (
    Archived,
    AuditEntry,
    BatchInfo,
    Check,
    ConsumerInfo,
    DeadLetter,
    Explanation,
    GroupStats,
    LeaseInfo,
    MessagePage,
    MessageSummary,
    ProcessInfo,
    QueueInfo,
    Repair,
    RetentionPreview,
    SeekPreview,
    SweepReport,
)
from penstock.domain.settlement import Ack, Leased, Nak, Reject, Reschedule, Retry, Settled, Settlement
from penstock.engines.connect_settings import ConnectSettings
from penstock.workers.app import App, Handler, HandlerOptions
from penstock.workers.tracing import trace
from penstock.workers.worker import SourceStatus, Worker

__version__ = "0.2.0"

# A library is silent unless its program listens; dead letters are signalled to this logger's children.
logging.getLogger(__name__).addHandler(logging.NullHandler())

__all__ = [
    "Ack",
    "App",
    "Archived",
    "AsyncBatch",
    "AsyncConsumer",
    "AsyncDelivery",
    "AsyncProducer",
    "AsyncQueue",
    "AsyncStore",
    "AuditEntry",
    "Batch",
    "BatchClosed",
    "BatchInfo",
    "Check",
    "ConnectSettings",
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
    "Gathered",
    "GroupMisused",
    "GroupStats",
    "Handler",
    "HandlerOptions",
    "HandlerUnavailable",
    "InvalidInput",
    "InvalidName",
    "InvalidPolicy",
    "InvalidSchedule",
    "InvalidUrl",
    "LakeBusy",
    "LeaseInfo",
    "LeaseLost",
    "Leased",
    "LogDiverged",
    "Message",
    "MessageFailed",
    "MessagePage",
    "MessageSummary",
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
    "PolicyFields",
    "ProcessInfo",
    "Producer",
    "Queue",
    "QueueInfo",
    "RangeTrimmed",
    "Refused",
    "Reject",
    "Repair",
    "Reschedule",
    "RetentionPreview",
    "Retry",
    "Schedule",
    "ScheduleOptions",
    "SchemaMissing",
    "SchemaTooNew",
    "SeekPreview",
    "SendOptions",
    "Settled",
    "Settlement",
    "SourceStatus",
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
