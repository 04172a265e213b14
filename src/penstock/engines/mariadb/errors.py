"""Translation of the server's and the driver's errors."""

from __future__ import annotations

from typing import Any

from penstock.domain import errors
from penstock.engines.positional.database import QueueHeld

MIGRATE = "run `penstock migrate` or store.migrate()"
DEADLOCKS = (1020, 1242, 1213)
# The last two are of a Galera node that lost the others.
LOST = (1053, 1077, 1079, 1927, 2003, 2006, 2013, 2055, 1047, 1180)
NO_SAVEPOINT = 1305


class UndoneTransaction(Exception):
    """The server rolled the transaction back for the sake of another one, or the connection ended before the commit was
    sent: nothing was changed, and the call may be made again."""


def code_of(error: BaseException) -> int:
    """The error number; 0 when there is none, as for a connection that ended."""
    code: Any = error.args[0] if error.args else 0
    return code if isinstance(code, int) else 0


def is_lost(error: BaseException) -> bool:
    """Whether the connection ended or is of no more use: the driver's own error for a closed one has the number 0."""
    return code_of(error) in (0, *LOST) or isinstance(error, OSError)


def lost(error: BaseException, name: str) -> errors.PenstockError:
    return errors.StoreUnavailable(
        f"{name} did not confirm a commit ({_text(error)}); a send may have been committed: repeat it with the same id"
    )


def translate(error: BaseException, name: str, busy_seconds: float) -> Exception:
    code, text = code_of(error), _text(error)
    if code in DEADLOCKS or is_lost(error):
        return UndoneTransaction(text)
    match code:
        case 1205:
            return QueueHeld(
                f"{name}: another transaction has held the queue for {busy_seconds:g} s; nothing was changed: end it "
                "or try again"
            )
        case 1146 | 1054 | 1109:
            return errors.SchemaMissing(f"{name} has no Penstock schema of this version ({text}): {MIGRATE}")
        case 1290 | 1792 | 1836:
            return errors.StoreReadOnly(f"{name} is read-only ({text}): connect to the primary server")
        case 1142 | 1143 | 1227 | 1370:
            return errors.StoreError(f"{name}: {text}; grant the user select, insert, update and delete on it")
        case 1153 | 1301:
            return errors.PayloadTooLarge(f"{name}: {text}: raise max_allowed_packet on the server")
        case 1114 | 1021 | 28:
            return errors.StoreFull(f"{name}: {text}; nothing was written")
        case 1030 | 1026:
            return errors.DiskError(f"{name}: {text}; whether the call took effect is not known: check the disk")
        case 1034 | 1712 | 1877:
            return errors.StoreCorrupt(f"{name} is damaged ({text}): restore a backup")
        case 1406 | 1366 | 1264:
            return errors.InvalidInput(f"the server refuses a value: {text}")
        case 1317 | 3024 | 1969:
            return errors.StoreUnavailable(f"{name}: {text}; nothing was changed")
        case 1040 | 1203 | 1226:
            return errors.StoreUnavailable(f"{name}: {text}: raise max_connections, or lower pool_size")
    return errors.StoreError(f"{name}: {text} ({code})")


def refused(error: BaseException, name: str) -> errors.PenstockError:
    """Why a connection could not be made."""
    code, text = code_of(error), _text(error)
    match code:
        case 1045 | 1698:
            return errors.NotAStore(f"{name} cannot be opened: {text}: check user and password in the URL")
        case 1044:
            return errors.NotAStore(f"{name} cannot be opened: {text}: grant the user rights on the database")
        case 1049:
            return errors.NotAStore(f"{name} cannot be opened: {text}: create the database first")
        case 1040 | 1203 | 1226:
            return errors.StoreUnavailable(f"{name}: {text}: raise max_connections, or lower pool_size")
    return errors.StoreUnavailable(f"{name} cannot be reached: {text}")


def _text(error: BaseException) -> str:
    text = str(error.args[1]) if len(error.args) > 1 else str(error)
    return " ".join(text.split()) or type(error).__name__
