"""Error replies in Redis' style: a code, and a sentence that names the value at fault. The encoder turns any exception
into such a reply."""

from __future__ import annotations

from penstock.domain import errors
from penstock.domain.validation import shown

CODES: dict[type[errors.PenstockError], str] = {
    errors.LeaseLost: "LEASELOST",
    errors.OutOfOrder: "OUTOFORDER",
    errors.DuplicateAddress: "DUPLICATEADDRESS",
    errors.BatchClosed: "BATCHCLOSED",
    errors.GroupMisused: "GROUPMISUSED",
    errors.ConsumerRemoved: "CONSUMERREMOVED",
    errors.NotFound: "NOTFOUND",
    errors.MessageFailed: "MESSAGEFAILED",
    errors.WaitTimeout: "TIMEOUT",
}
# Errors of the store are for the log only: they name files and statements.
STORE_FAILURES: dict[type[errors.PenstockError], str] = {
    errors.StoreUnavailable: "TRYAGAIN the store is busy or cannot be reached for now: try again",
    errors.StoreReadOnly: "READONLY the store may be read but not written",
    errors.StoreFull: "MISCONF the store has no room left: nothing was written",
    errors.DiskError: "MISCONF the disk under the store failed: whether this command took effect is not known",
}
STORE_FAILED = "ERR the store failed: the server's log says why"
# Bytes of an unknown command and its arguments in the error, as in Redis.
SHOWN_BYTES = 128


class CommandError(errors.PenstockError):
    """A command was called wrongly or refused; its text is the whole error reply."""


def error_text(error: BaseException) -> str:
    if isinstance(error, CommandError):
        return str(error)
    if isinstance(error, errors.StoreError):
        return STORE_FAILURES.get(type(error), STORE_FAILED)
    if isinstance(error, errors.PenstockError):
        return f"{CODES.get(type(error), 'ERR')} {error}"
    return f"ERR internal error: {type(error).__name__}"


def wrong_arity(name: str) -> CommandError:
    return CommandError(f"ERR wrong number of arguments for '{name.lower()}' command")


def syntax_error(name: str, word: bytes, known: str) -> CommandError:
    return CommandError(f"ERR syntax error: unknown option {quoted(word)} for '{name.lower()}' (usage: {known})")


def unknown_command(arguments: list[bytes]) -> CommandError:
    name = printable(arguments[0])
    rest = ""
    for argument in arguments[1:]:
        if len(rest) >= SHOWN_BYTES:
            break
        rest += f"'{printable(argument, SHOWN_BYTES - len(rest))}' "
    return CommandError(f"ERR unknown command '{name}', with args beginning with: {rest}")


def unknown_subcommand(name: str, word: bytes) -> CommandError:
    return CommandError(f"ERR unknown subcommand '{printable(word)}'. Try {name} HELP.")


def printable(data: bytes, limit: int = SHOWN_BYTES) -> str:
    """For a reply or a log: shortened, and without control characters."""
    return shown(data[:limit].decode(errors="replace"), limit + 12)[1:-1]


def quoted(data: bytes) -> str:
    return f"'{printable(data)}'"
