"""Every error Penstock raises, in one tree.

    PenstockError
    ├── InvalidInput            a value the caller gave is wrong; nothing was changed
    │   ├── InvalidName         not 1-255 bytes of UTF-8, or with control characters
    │   ├── InvalidPolicy       an unknown policy field, or a value it cannot take
    │   ├── InvalidSchedule     not a cron rule, or not a time zone
    │   ├── InvalidUrl          not the address of a store
    │   └── PayloadTooLarge     more bytes than the queue's max_payload_bytes
    ├── Refused                 the call is well formed, but the state of the queue says no
    │   ├── LeaseLost           the token is stale: the lease ended, was settled or was taken over
    │   ├── OutOfOrder          a message before it in the same lease of an ordered queue is still in flight
    │   ├── DuplicateAddress    a live message already has this address (`.existing_id`)
    │   ├── BatchClosed         the batch has ended or was cancelled, and takes no more messages
    │   ├── GroupMisused        one group read both with leases and as a stream
    │   ├── ConsumerRemoved     the consumer missed its heartbeats and must register again
    │   └── RangeTrimmed        the asked-for positions are past retention
    │       └── LogDiverged     the mark belongs to a log that this store does not have: it was restored or failed over
    ├── NotFound                nothing has this name or id
    ├── MessageFailed           the awaited message ended, and not with success (`.outcome`, `.reason`, `.code`)
    ├── WaitTimeout             the awaited message did not end in time
    ├── StoreError              the database behind the store
    │   ├── StoreUnavailable    locked or unreachable for now; trying again is safe
    │   ├── StoreFull           no room left on the device
    │   ├── DiskError           the device under the store failed; whether the call took effect is not known
    │   ├── StoreReadOnly       may be read but not written
    │   ├── StoreCorrupt        damaged; nothing was repaired or removed
    │   ├── NotAStore           the path holds something else
    │   ├── SchemaMissing       the schema must be made first (`penstock migrate`)
    │   ├── SchemaTooNew        made by a newer Penstock
    │   └── EngineTooOld        the database software lacks a fix or feature that Penstock needs
    ├── HandlerUnavailable      a worker cannot run its handlers: a process does not start, or all of them are stuck
    ├── PipelineError           a job of the pipeline could not do its work
    │   ├── SparkUnavailable    Spark did not start, or its cluster cannot be reached
    │   ├── NotALake            the directory holds something else, or the lake of another store
    │   └── LakeBusy            another run is writing to the lake
    └── MissingExtra            an optional dependency is not installed

The first sentence of a class is what it means; the message of an instance names the value at fault.
"""

from __future__ import annotations


class PenstockError(Exception):
    """Any error that Penstock raises on purpose."""


class InvalidInput(PenstockError, ValueError):
    """A value the caller gave is wrong; nothing was changed."""


class InvalidName(InvalidInput):
    """A name is not 1-255 bytes of UTF-8 without control characters."""


class InvalidPolicy(InvalidInput):
    """A policy field is unknown, or cannot take the given value."""


class InvalidSchedule(InvalidInput):
    """A cron rule or a time zone does not parse."""


class InvalidUrl(InvalidInput):
    """A URL does not name a store."""


class PayloadTooLarge(InvalidInput):
    """A payload has more bytes than its queue allows."""


class Refused(PenstockError):
    """The call is well formed, but the state of the queue says no."""


class LeaseLost(Refused):
    """The token is stale: the lease ended, was settled, or was taken over."""


class OutOfOrder(Refused):
    """A message before it in the same lease of an ordered queue is still in flight: settle that one first."""


class DuplicateAddress(Refused):
    """A live message of the queue already has this address."""

    def __init__(self, message: str, existing_id: str) -> None:
        super().__init__(message)
        self.existing_id = existing_id

    def __reduce__(self) -> tuple[type[DuplicateAddress], tuple[str, str]]:
        return type(self), (str(self), self.existing_id)


class BatchClosed(Refused):
    """The batch was cancelled and takes no more messages."""


class GroupMisused(Refused):
    """A group is read either with leases or as a stream, never both."""


class ConsumerRemoved(Refused):
    """The consumer missed its heartbeats, was removed, and must register again."""


class RangeTrimmed(Refused):
    """The positions asked for are past retention."""


class LogDiverged(RangeTrimmed):
    """The mark belongs to a log that this store does not have: it was restored, or failed over with loss."""


class NotFound(PenstockError, LookupError):
    """Nothing has this name or id."""


class MessageFailed(PenstockError):
    """The awaited message ended, and not with success."""

    def __init__(self, message: str, outcome: str, reason: str | None, code: str | None = None) -> None:
        super().__init__(message)
        self.outcome = outcome
        self.reason = reason
        self.code = code

    def __reduce__(self) -> tuple[type[MessageFailed], tuple[str, str, str | None, str | None]]:
        return type(self), (str(self), self.outcome, self.reason, self.code)


class WaitTimeout(PenstockError, TimeoutError):
    """The awaited message did not end in time."""


class StoreError(PenstockError):
    """The database behind the store."""


class StoreUnavailable(StoreError):
    """Locked or unreachable for now; trying again is safe."""


class StoreFull(StoreError):
    """No room left on the device; nothing was written."""


class DiskError(StoreError):
    """The device under the store failed; whether the call took effect is not known."""


class StoreReadOnly(StoreError):
    """The store may be read but not written."""


class StoreCorrupt(StoreError):
    """The database is damaged; nothing was repaired or removed."""


class NotAStore(StoreError):
    """The path holds something that is not a database."""


class SchemaMissing(StoreError):
    """The schema must be made before the store can be used."""


class SchemaTooNew(StoreError):
    """The schema was made by a newer Penstock."""


class EngineTooOld(StoreError):
    """The database software lacks a fix or a feature that Penstock needs."""


class HandlerUnavailable(PenstockError):
    """A worker cannot run its handlers: a process does not start, or all of them are stuck."""


class PipelineError(PenstockError):
    """A job of the pipeline could not do its work."""


class SparkUnavailable(PipelineError):
    """Spark did not start, or its cluster cannot be reached."""


class NotALake(PipelineError):
    """The directory holds something else, or the lake of another store."""


class LakeBusy(PipelineError):
    """Another run is writing to the lake; it can be tried again when that has ended."""


class MissingExtra(PenstockError, ImportError):
    """An optional dependency is not installed."""
