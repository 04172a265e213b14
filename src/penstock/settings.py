"""Settings: flags override the environment, the environment the settings file, the file the defaults.

penstock --url sqlite:///app.db status
PENSTOCK_URL=sqlite:///app.db penstock status
penstock --config penstock.toml status          # or PENSTOCK_CONFIG; the file says: url = "sqlite:///app.db"

A setting of a server has a name in each place: `port` in the table [resp] of the file is PENSTOCK_RESP_PORT and
--resp-port; the same holds for [http].
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import msgspec

from penstock.domain.errors import InvalidInput
from penstock.domain.validation import nearest, seconds_of, shown

DEFAULT_URL = "sqlite:///penstock.db"
DEFAULT_HTTP_PORT = 4778
URL_VARIABLE = "PENSTOCK_URL"
CONFIG_VARIABLE = "PENSTOCK_CONFIG"


class Settings(msgspec.Struct, frozen=True):
    """The store of a command; `url_source` names where the URL was set."""

    url: str = DEFAULT_URL
    url_source: str = "the default"


KIBIBYTE = 1 << 10
MEBIBYTE = 1 << 20


def described(description: str) -> msgspec.Meta:
    return msgspec.Meta(description=description)


Whole = Annotated[int, msgspec.Meta(ge=0)]
Port = Annotated[int, msgspec.Meta(ge=0, le=65_535)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of one client: everything that an untrusted client can send is bounded."""

    arguments: Annotated[Whole, described("arguments of one command")] = 65_536
    bulk_bytes: Annotated[Whole, described("bytes of one argument")] = 16 * MEBIBYTE + 64 * KIBIBYTE
    request_bytes: Annotated[Whole, described("bytes of one command")] = 32 * MEBIBYTE
    inline_bytes: Annotated[Whole, described("bytes of a command typed as a line")] = 64 * KIBIBYTE
    # Redis' own limits before AUTH.
    unauthenticated_arguments: Annotated[Whole, described("arguments of one command before AUTH")] = 10
    unauthenticated_bulk_bytes: Annotated[Whole, described("bytes of one argument before AUTH")] = 16 * KIBIBYTE
    unauthenticated_output_bytes: Annotated[Whole, described("bytes of unread replies before AUTH")] = 64 * KIBIBYTE
    output_bytes: Annotated[
        Whole, described("bytes of unread replies, beyond which a client that reads nothing for 10 s is closed")
    ] = 64 * MEBIBYTE
    pipelined: Annotated[Whole, described("commands of one client in progress; beyond, reading pauses")] = 4_096
    transaction_bytes: Annotated[Whole, described("bytes of the commands between MULTI and EXEC")] = 64 * MEBIBYTE
    clients: Annotated[Whole, described("clients; 0 for no limit")] = 10_000
    clients_per_address: Annotated[Whole, described("clients from one address; 0 for no limit")] = 0
    clients_per_user: Annotated[Whole, described("clients of one user; 0 for no limit")] = 0
    idle_seconds: Annotated[Seconds, described("an idle client is closed after this; 0 for never")] = 0
    handshake_seconds: Annotated[Seconds, described("time for a client to authenticate; 0 for no limit")] = 10
    request_seconds: Annotated[
        Seconds, described("time to complete a command, or to go on reading a reply; 0 for no limit")
    ] = 60
    background_sends: Annotated[Whole, described("sends with NOBLOCK that wait to be stored")] = 1_280
    failed_logins_per_second: Annotated[Whole, described("from one address; more are refused")] = 10


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
        str, described("the address to listen on; without users or a password only clients of this machine are served")
    ] = "127.0.0.1"
    port: Annotated[Port, described("the port to listen on")] = 4777
    password: Annotated[str | None, described("the default user's password")] = None
    tls_certificate: Annotated[str | None, described("a PEM file; with it clients must speak TLS")] = None
    tls_key: Annotated[str | None, described("the certificate's private key, a PEM file")] = None
    tls_client_authority: Annotated[
        str | None, described("a PEM file; clients must have a certificate signed by it")
    ] = None
    stream_lease_seconds: Annotated[
        Annotated[float, msgspec.Meta(gt=0)], described("lease of an entry read by XREADGROUP")
    ] = 3600
    max_block_seconds: Annotated[
        Seconds, described("longest block of a command, for clients that time out; 0 for no limit")
    ] = 0
    sweep_seconds: Annotated[Annotated[float, msgspec.Meta(gt=0)], described("time between two maintenance passes")] = (
        1.0
    )
    users: dict[str, UserSettings] = msgspec.field(default_factory=dict)


class HttpSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The HTTP server: API, metrics and dashboard."""

    enabled: Annotated[bool, described("whether to listen")] = True
    host: Annotated[
        str, described("the address to listen on; others than loopback need users, a password or a token")
    ] = "127.0.0.1"
    port: Annotated[Port, described("the port to listen on")] = DEFAULT_HTTP_PORT
    hosts: Annotated[
        str | None,
        described("host names that clients may use, separated by commas; without it any, with a login"),
    ] = None
    password: Annotated[str | None, described("the default user's password")] = None
    token: Annotated[str | None, described("a token that makes a client the default user")] = None
    tls_certificate: Annotated[str | None, described("a PEM file; with it clients must speak TLS")] = None
    tls_key: Annotated[str | None, described("the certificate's private key, a PEM file")] = None
    tls_client_authority: Annotated[
        str | None, described("a PEM file; clients must have a certificate signed by it")
    ] = None
    body_bytes: Annotated[Whole, described("bytes of a request's body, and of a line of a stream")] = 32 * MEBIBYTE
    header_bytes: Annotated[Whole, described("bytes of a request's headers")] = 64 * KIBIBYTE
    clients: Annotated[Whole, described("clients; 0 for no limit")] = 10_000
    clients_per_address: Annotated[Whole, described("clients from one address; 0 for no limit")] = 0
    clients_per_user: Annotated[Whole, described("connections of one user; 0 for no limit")] = 0
    idle_seconds: Annotated[Seconds, described("an idle connection is closed after this")] = 75
    request_seconds: Annotated[
        Seconds,
        described("time for headers, for the next part of a body, and to go on reading a response; 0 for no limit"),
    ] = 60
    max_wait_seconds: Annotated[Seconds, described("longest wait of a long-polling request")] = 60
    session_seconds: Annotated[Seconds, described("an idle browser session ends after this")] = 12 * 3600
    failed_logins_per_second: Annotated[Whole, described("from one address; more are refused")] = 10
    metrics_queues: Annotated[Whole, described("queues with their own metrics; the others are left out")] = 1_000
    users: dict[str, UserSettings] = msgspec.field(default_factory=dict)


class SettingsFile(msgspec.Struct, frozen=True):
    """The tables and keys of a settings file."""

    url: str | None = None
    users: dict[str, UserSettings] = msgspec.field(default_factory=dict)
    resp: dict[str, Any] = msgspec.field(default_factory=dict)
    http: dict[str, Any] = msgspec.field(default_factory=dict)


# The types of settings in words.
KINDS: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    str | None: "text",
}
# Invalid values of these are not shown.
SECRETS = ("password", "token")
ServerSettings = TypeVar("ServerSettings", RespSettings, HttpSettings)
SERVERS: dict[str, type[RespSettings] | type[HttpSettings]] = {"resp": RespSettings, "http": HttpSettings}


def load(url: str | None, config: str | None, environment: Mapping[str, str]) -> Settings:
    """The settings in force, from the flags given (None when not) and the environment."""
    # The file is read even if a flag overrides it: errors in a file that is named should be reported.
    path = config or environment.get(CONFIG_VARIABLE)
    from_file = read_file(Path(path)) if path else SettingsFile()
    if url is not None:
        return Settings(url, "--url")
    # Shells and unit files set an empty variable for "not set".
    if environment.get(URL_VARIABLE):
        return Settings(environment[URL_VARIABLE], URL_VARIABLE)
    if from_file.url is not None:
        return Settings(from_file.url, str(path))
    return Settings()


def load_server(
    kind: type[ServerSettings], flags: Mapping[str, str | None], config: str | None, environment: Mapping[str, str]
) -> ServerSettings:
    """The settings of one server. Flags and variables are text and are converted like the values of the file."""
    server = next(name for name, one in SERVERS.items() if one is kind)
    path = config or environment.get(CONFIG_VARIABLE)
    from_file = read_file(Path(path)) if path else SettingsFile()
    values: dict[str, Any] = dict(getattr(from_file, server))
    places = {name: f"{path}: {server}.{name}" for name in values}
    known = server_fields(server)
    for name in values:
        if name not in known and name != "users":
            raise InvalidInput(f"{path}: unknown setting {server}.{name}{nearest(name, known)}")
    for name in known:
        variable = f"PENSTOCK_{server.upper()}_{name.upper()}"
        given = flags.get(name)
        if given is not None:
            values[name], places[name] = given, f"--{server}-{name.replace('_', '-')}"
        elif environment.get(variable):
            values[name], places[name] = environment[variable], variable
    hints = get_type_hints(kind, include_extras=True)
    for name, value in values.items():
        if name.endswith("_seconds") and isinstance(value, str):
            values[name] = _seconds(places[name], value)
        _check_setting(places[name], values[name], hints[name], secret=name in SECRETS)
    settings = msgspec.convert(values, kind, strict=False)
    return msgspec.structs.replace(settings, users={**from_file.users, **settings.users})


def _seconds(place: str, text: str) -> float:
    try:
        return seconds_of(text)
    except InvalidInput as error:
        raise InvalidInput(f"{place}: {error}") from None


def _check_setting(place: str, value: object, hint: Any, secret: bool) -> None:
    try:
        msgspec.convert(value, hint, strict=False)
    except msgspec.ValidationError as error:
        expected = _expected(hint)
        if expected is None:
            raise InvalidInput(f"{place}: {_lower_first(str(error))}") from None
        raise InvalidInput(f"{place} must be {expected}{'' if secret else f', not {shown(value)}'}") from None


def _expected(hint: Any) -> str | None:
    """The allowed values of a setting, in words."""
    words = KINDS.get(getattr(hint, "__origin__", None))
    for rule in getattr(hint, "__metadata__", ()):
        if rule.le is not None:
            return f"{words} between {rule.ge} and {rule.le}"
        if rule.ge is not None:
            return f"{words} of at least {rule.ge}"
        if rule.gt is not None:
            return f"{words} above {rule.gt}"
    return words


def server_fields(server: str) -> dict[str, str]:
    """Every single-valued setting of a server with its description."""
    hints = get_type_hints(SERVERS[server], include_extras=True)
    return {name: _description(hint) for name, hint in hints.items() if name != "users"}


def _description(hint: Any) -> str:
    found = [one.description for one in getattr(hint, "__metadata__", ()) if isinstance(one, msgspec.Meta)]
    return next(one for one in reversed(found) if one is not None)


def example_file() -> str:
    """A settings file with every setting at its default."""
    lines = ["# The store.", f'url = "{DEFAULT_URL}"', "", *EXAMPLE_USERS]
    for server, kind in SERVERS.items():
        lines += ["", f"# {TITLES[server]}: penstock serve.", f"[{server}]", *_example_lines(server, kind())]
    return "\n".join([*lines, ""])


def _example_lines(server: str, defaults: RespSettings | HttpSettings) -> list[str]:
    lines = []
    for name, about in server_fields(server).items():
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
    "# A user of both servers, with its own rights. [resp.users.NAME] and [http.users.NAME] are users of one server.",
    "# [users.billing]",
    '# password_hash = "scrypt$..."                   # made by: penstock serve --hash-password',
    '# token_hash = "sha256$..."                      # made by: penstock serve --make-token',
    '# role = "operator"                              # or "observer", "admin"; or single rights instead:',
    '# rights = ["send", "receive", "look"]           # and "operate", "manage"',
    '# queues = ["invoices", "orders-*"]              # with a role: all by default',
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
