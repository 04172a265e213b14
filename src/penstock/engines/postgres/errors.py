"""Translation of PostgreSQL errors: SQLSTATE codes of the schema's functions, and those of the server."""

from __future__ import annotations

import psycopg

from penstock.domain import errors
from penstock.engines.postgres.prepared_statements import OUTDATED

# The codes that the functions raise; see functions/store/validation.sql.
RAISED: dict[str, type[errors.PenstockError]] = {
    "PN100": errors.InvalidInput,
    "PN101": errors.InvalidName,
    "PN102": errors.InvalidPolicy,
    "PN105": errors.PayloadTooLarge,
    "PN200": errors.Refused,
    "PN201": errors.LeaseLost,
    "PN203": errors.BatchClosed,
    "PN204": errors.GroupMisused,
    "PN205": errors.ConsumerRemoved,
    "PN206": errors.RangeTrimmed,
    "PN207": errors.OutOfOrder,
    "PN208": errors.LogDiverged,
    "PN300": errors.NotFound,
    "PN400": errors.SchemaMissing,
}
DUPLICATE_ADDRESS = "PN202"
MIGRATE = "run `penstock migrate` or store.migrate()"


class Conflict(Exception):
    """The transaction was undone by a deadlock, a serialization failure, a missing prepared statement, or an upgrade
    that replaced a function it was about to call: it may be repeated."""


def translate(error: psycopg.Error, name: str) -> Exception:
    code = error.sqlstate or ""
    text = error.diag.message_primary or str(error).strip() or type(error).__name__
    if code == DUPLICATE_ADDRESS:
        return errors.DuplicateAddress(text, error.diag.message_detail or "")
    if code in RAISED:
        return RAISED[code](text)
    if code in ("40001", "40P01") or isinstance(error, OUTDATED) or _is_replaced(code, text):
        return Conflict(text)
    return _server_error(error, code, text, name)


def _is_replaced(code: str, text: str) -> bool:
    """Whether `migrate` dropped a function and created it again during the call. The server reports an internal error,
    whose text is never translated."""
    return code == "XX000" and text.startswith("cache lookup failed for function")


def unreachable(error: psycopg.Error, name: str) -> errors.PenstockError:
    """The reason for a failed connection, which has a text but no SQLSTATE."""
    text = " ".join(str(error).split())
    if "does not exist" in text or "authentication failed" in text or "no pg_hba.conf entry" in text:
        return errors.NotAStore(f"{name} cannot be opened: {text}")
    return errors.StoreUnavailable(f"{name} cannot be reached: {text}")


def _server_error(error: psycopg.Error, code: str, text: str, name: str) -> errors.PenstockError:
    match code:
        case "3F000" | "42P01" | "42883" | "42703":
            return errors.SchemaMissing(f"{name} has no Penstock schema of this version ({text}): {MIGRATE}")
        case "25006":
            return errors.StoreReadOnly(f"{name} is read-only ({text}): connect to the primary server")
        case "42501":
            return errors.StoreError(f"{name}: {text}; grant the role one of penstock_producer, penstock_consumer, ...")
        case "57014":
            return errors.StoreUnavailable(f"{name}: {text} (statement_timeout or a cancel); nothing was changed")
        case "55P03":
            return errors.StoreUnavailable(f"{name}: {text}: another transaction holds a lock; nothing was changed")
        case "53100":
            return errors.StoreFull(f"{name}: {text}; nothing was written")
        case "58030":
            return errors.DiskError(f"{name}: {text}; whether the call took effect is not known")
        case "XX001" | "XX002":
            return errors.StoreCorrupt(f"{name} is damaged ({text}): restore a backup")
        case "54000" | "54001" | "22021" | "22P05" | "22P02" | "22003":
            return errors.InvalidInput(f"PostgreSQL refuses a value: {text}")
        case "3D000" | "28P01" | "28000":
            return errors.NotAStore(f"{name} cannot be opened: {text}")
    if not code and isinstance(error, psycopg.DataError):
        return errors.InvalidInput(f"PostgreSQL refuses a value: {text}")
    if not code and isinstance(error, psycopg.ProgrammingError | psycopg.NotSupportedError):
        # The driver refused the call before it reached the server.
        return errors.StoreError(f"{name}: {text}; nothing was changed")
    if not code or code[:2] in ("08", "53", "57", "25"):
        return errors.StoreUnavailable(
            f"{name} cannot be reached or ended the connection ({text}); a send may have been committed: "
            "repeat it with the same id"
        )
    return errors.StoreError(f"{name}: {text} ({code})")
