"""Settings: a flag wins over the environment, the environment over the settings file, the file over the default.

penstock --url sqlite:///app.db status
PENSTOCK_URL=sqlite:///app.db penstock status
penstock --config penstock.toml status          # or PENSTOCK_CONFIG; the file says: url = "sqlite:///app.db"

What a door of the server needs has a name in each place: `port` in the file's table [resp] is PENSTOCK_RESP_PORT is
--resp-port, and so for [http].
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import msgspec

from penstock.domain.errors import InvalidInput
from penstock.domain.names import nearest, shown

DEFAULT_URL = "sqlite:///penstock.db"
DEFAULT_HTTP_PORT = 4778
URL_VARIABLE = "PENSTOCK_URL"
CONFIG_VARIABLE = "PENSTOCK_CONFIG"


class Settings(msgspec.Struct, frozen=True):
    """What a run of Penstock needs to know; `url_source` tells a person where the URL came from."""

    url: str = DEFAULT_URL
    url_source: str = "the default"


KIBIBYTE = 1 << 10
MEBIBYTE = 1 << 20


def said(description: str) -> msgspec.Meta:
    return msgspec.Meta(description=description)


Whole = Annotated[int, msgspec.Meta(ge=0)]
Port = Annotated[int, msgspec.Meta(ge=0, le=65_535)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much one client of the server may ask for: everything a stranger can send has a bound."""

    arguments: Annotated[Whole, said("arguments of one command")] = 65_536
    bulk_bytes: Annotated[Whole, said("bytes of one argument")] = 16 * MEBIBYTE + 64 * KIBIBYTE
    request_bytes: Annotated[Whole, said("bytes of one command")] = 32 * MEBIBYTE
    inline_bytes: Annotated[Whole, said("bytes of a command typed as a line")] = 64 * KIBIBYTE
    # Redis' own bounds for those who have not said who they are.
    stranger_arguments: Annotated[Whole, said("arguments of one command before AUTH")] = 10
    stranger_bulk_bytes: Annotated[Whole, said("bytes of one argument before AUTH")] = 16 * KIBIBYTE
    stranger_output_bytes: Annotated[Whole, said("bytes of replies that are not read, before AUTH")] = 64 * KIBIBYTE
    output_bytes: Annotated[
        Whole, said("bytes of replies not read yet, beyond which a client is closed when it reads nothing for 10 s")
    ] = 64 * MEBIBYTE
    pipelined: Annotated[Whole, said("commands of one client under way; reading waits beyond")] = 4_096
    transaction_bytes: Annotated[Whole, said("bytes of the commands between MULTI and EXEC")] = 64 * MEBIBYTE
    clients: Annotated[Whole, said("clients; 0 for no limit")] = 10_000
    clients_per_address: Annotated[Whole, said("clients from one address; 0 for no limit")] = 0
    clients_per_user: Annotated[Whole, said("clients of one user; 0 for no limit")] = 0
    idle_seconds: Annotated[Seconds, said("a client that says nothing is closed after this; 0 for never")] = 0
    handshake_seconds: Annotated[Seconds, said("a client must have said who it is by then; 0 for no limit")] = 10
    request_seconds: Annotated[
        Seconds, said("a command that was begun must be whole, and a reply be read on, by then; 0 for no limit")
    ] = 60
    background_sends: Annotated[Whole, said("sends with NOBLOCK that wait to be stored")] = 1_280
    failed_logins_per_second: Annotated[Whole, said("from one address; more are refused")] = 10


class UserSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One user of the server: the patterns of the queues it may use, and what it may do with them."""

    password_hash: str | None = None
    token_hash: str | None = None
    role: str | None = None
    queues: tuple[str, ...] = ()
    rights: tuple[str, ...] = ()


class RespSettings(Limits, frozen=True, kw_only=True):
    """The Redis-protocol server."""

    host: Annotated[
        str, said("the address to listen on; without users or a password only clients of this machine are let in")
    ] = "127.0.0.1"
    port: Annotated[Port, said("the port to listen on")] = 4777
    password: Annotated[str | None, said("the default user's password")] = None
    tls_certificate: Annotated[str | None, said("a PEM file; with it clients must speak TLS")] = None
    tls_key: Annotated[str | None, said("the certificate's private key, a PEM file")] = None
    tls_client_authority: Annotated[str | None, said("clients must show a certificate that this PEM file signed")] = (
        None
    )
    stream_lease_seconds: Annotated[
        Annotated[float, msgspec.Meta(gt=0)], said("how long XREADGROUP leases an entry")
    ] = 3600
    max_block_seconds: Annotated[
        Seconds, said("blocking commands answer nothing after this, for clients that time out; 0 for no limit")
    ] = 0
    sweep_seconds: Annotated[Annotated[float, msgspec.Meta(gt=0)], said("time between two maintenance passes")] = 1.0
    users: dict[str, UserSettings] = msgspec.field(default_factory=dict)


class HttpSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The HTTP server: API, metrics and dashboard."""

    enabled: Annotated[bool, said("whether to listen at all")] = True
    host: Annotated[str, said("the address to listen on; others than loopback need users, a password or a token")] = (
        "127.0.0.1"
    )
    port: Annotated[Port, said("the port to listen on")] = DEFAULT_HTTP_PORT
    hosts: Annotated[
        str | None,
        said("names by which clients may call the server, with commas between; without it any, with a login"),
    ] = None
    password: Annotated[str | None, said("the default user's password")] = None
    token: Annotated[str | None, said("a token that makes a client the default user")] = None
    tls_certificate: Annotated[str | None, said("a PEM file; with it clients must speak TLS")] = None
    tls_key: Annotated[str | None, said("the certificate's private key, a PEM file")] = None
    tls_client_authority: Annotated[str | None, said("clients must show a certificate that this PEM file signed")] = (
        None
    )
    body_bytes: Annotated[Whole, said("bytes of a request's body, and of a line of a stream")] = 32 * MEBIBYTE
    header_bytes: Annotated[Whole, said("bytes of a request's headers")] = 64 * KIBIBYTE
    clients: Annotated[Whole, said("clients; 0 for no limit")] = 10_000
    clients_per_address: Annotated[Whole, said("clients from one address; 0 for no limit")] = 0
    clients_per_user: Annotated[Whole, said("connections of one user; 0 for no limit")] = 0
    idle_seconds: Annotated[Seconds, said("a client that asks nothing more is closed after this")] = 75
    request_seconds: Annotated[
        Seconds,
        said("headers must be whole, a part of a body have come, and an answer be read on, by then; 0 for no limit"),
    ] = 60
    max_wait_seconds: Annotated[Seconds, said("waiting requests answer with nothing after this")] = 60
    session_seconds: Annotated[Seconds, said("a browser that does nothing must log in again after this")] = 12 * 3600
    failed_logins_per_second: Annotated[Whole, said("from one address; more are refused")] = 10
    metrics_queues: Annotated[Whole, said("queues with metrics of their own; the others are left out")] = 1_000
    users: dict[str, UserSettings] = msgspec.field(default_factory=dict)


class SettingsFile(msgspec.Struct, frozen=True):
    """Everything a settings file may say."""

    url: str | None = None
    users: dict[str, UserSettings] = msgspec.field(default_factory=dict)
    resp: dict[str, Any] = msgspec.field(default_factory=dict)
    http: dict[str, Any] = msgspec.field(default_factory=dict)


# How a setting is called for people, by its type.
KINDS: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    str | None: "text",
}
# A wrong value of these is not repeated.
SECRETS = ("password", "token")
Door = TypeVar("Door", RespSettings, HttpSettings)
DOORS: dict[str, type[RespSettings] | type[HttpSettings]] = {"resp": RespSettings, "http": HttpSettings}


def load(url: str | None, config: str | None, environment: Mapping[str, str]) -> Settings:
    """The settings in force, from the flags given (None when not) and the environment."""
    # The file is read even if a flag overrules it: a file that is named and wrong is a mistake worth hearing about.
    path = config or environment.get(CONFIG_VARIABLE)
    from_file = read_file(Path(path)) if path else SettingsFile()
    if url is not None:
        return Settings(url, "--url")
    # An empty variable is how shells and unit files say "not set".
    if environment.get(URL_VARIABLE):
        return Settings(environment[URL_VARIABLE], URL_VARIABLE)
    if from_file.url is not None:
        return Settings(from_file.url, str(path))
    return Settings()


def load_door(
    kind: type[Door], flags: Mapping[str, str | None], config: str | None, environment: Mapping[str, str]
) -> Door:
    """The settings of one door of the server. Flags and variables come as text and are read like the file's values."""
    door = next(name for name, one in DOORS.items() if one is kind)
    path = config or environment.get(CONFIG_VARIABLE)
    from_file = read_file(Path(path)) if path else SettingsFile()
    values: dict[str, Any] = dict(getattr(from_file, door))
    places = {name: f"{path}: {door}.{name}" for name in values}
    known = door_fields(door)
    for name in values:
        if name not in known and name != "users":
            raise InvalidInput(f"{path}: unknown setting {door}.{name}{nearest(name, known)}")
    for name in known:
        variable = f"PENSTOCK_{door.upper()}_{name.upper()}"
        given = flags.get(name)
        if given is not None:
            values[name], places[name] = given, f"--{door}-{name.replace('_', '-')}"
        elif environment.get(variable):
            values[name], places[name] = environment[variable], variable
    hints = get_type_hints(kind, include_extras=True)
    for name, value in values.items():
        _check_setting(places[name], value, hints[name], secret=name in SECRETS)
    settings = msgspec.convert(values, kind, strict=False)
    return msgspec.structs.replace(settings, users={**from_file.users, **settings.users})


def _check_setting(place: str, value: object, hint: Any, secret: bool) -> None:
    try:
        msgspec.convert(value, hint, strict=False)
    except msgspec.ValidationError as error:
        expected = _expected(hint)
        if expected is None:
            raise InvalidInput(f"{place}: {_lower_first(str(error))}") from None
        raise InvalidInput(f"{place} must be {expected}{'' if secret else f', not {shown(value)}'}") from None


def _expected(hint: Any) -> str | None:
    """What a setting of one value may be, in words."""
    words = KINDS.get(getattr(hint, "__origin__", None))
    for rule in getattr(hint, "__metadata__", ()):
        if rule.le is not None:
            return f"{words} between {rule.ge} and {rule.le}"
        if rule.ge is not None:
            return f"{words} of at least {rule.ge}"
        if rule.gt is not None:
            return f"{words} above {rule.gt}"
    return words


def door_fields(door: str) -> dict[str, str]:
    """Every setting of a door that is one value, and what it means."""
    hints = get_type_hints(DOORS[door], include_extras=True)
    return {name: _description(hint) for name, hint in hints.items() if name != "users"}


def _description(hint: Any) -> str:
    found = [one.description for one in getattr(hint, "__metadata__", ()) if isinstance(one, msgspec.Meta)]
    return next(one for one in reversed(found) if one is not None)


def example_file() -> str:
    """A settings file with every setting at its default."""
    lines = ["# The store.", f'url = "{DEFAULT_URL}"', "", *EXAMPLE_USERS]
    for door, kind in DOORS.items():
        lines += ["", f"# {TITLES[door]}: penstock serve.", f"[{door}]", *_example_lines(door, kind())]
    return "\n".join([*lines, ""])


def _example_lines(door: str, defaults: RespSettings | HttpSettings) -> list[str]:
    lines = []
    for name, about in door_fields(door).items():
        value = getattr(defaults, name)
        lines += [f"# {about}", f"{'# ' if value is None else ''}{name} = {_toml(value)}"]
    return lines


def _toml(value: object) -> str:
    if value is None:
        return '""'
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else f"{value}"


TITLES = {"resp": "The Redis-protocol server", "http": "The HTTP server, with API and dashboard"}
EXAMPLE_USERS = (
    "# A user of all doors, with rights of its own. [resp.users.NAME] and [http.users.NAME] are users of one door.",
    "# [users.billing]",
    '# password_hash = "scrypt$..."                   # made by: penstock serve --hash-password',
    '# token_hash = "sha256$..."                      # made by: penstock serve --make-token',
    '# role = "operator"                              # or "observer", "admin"; or single rights instead:',
    '# rights = ["send", "receive", "look"]           # and "operate", "manage"',
    '# queues = ["invoices", "orders-*"]              # with a role: all, unless told',
)


def read_file(path: Path) -> SettingsFile:
    values = _parse(path, _read(path))
    known = SettingsFile.__struct_fields__
    for name in values:
        if name not in known:
            raise InvalidInput(
                f"{path}: unknown setting {shown(name)}{nearest(name, known)} (known: {', '.join(known)})"
            )
    try:
        return msgspec.convert(values, SettingsFile)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{path}: {_lower_first(str(error))}") from None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InvalidInput(f"there is no settings file at {path}") from None
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path} is not valid TOML: byte {error.start} is not UTF-8") from None
    except OSError as error:
        raise InvalidInput(f"the settings file {path} cannot be read: {error.strerror}") from None


def _parse(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"{path} is not valid TOML: {_lower_first(str(error))}") from None


def _lower_first(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]
