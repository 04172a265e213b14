"""Settings: a flag wins over the environment, the environment over the settings file, the file over the default.

penstock --url sqlite:///app.db status
PENSTOCK_URL=sqlite:///app.db penstock status
penstock --config penstock.toml status          # or PENSTOCK_CONFIG; the file says: url = "sqlite:///app.db"
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from penstock.domain.errors import InvalidInput
from penstock.domain.names import nearest, shown

DEFAULT_URL = "sqlite:///penstock.db"
URL_VARIABLE = "PENSTOCK_URL"
CONFIG_VARIABLE = "PENSTOCK_CONFIG"


class Settings(msgspec.Struct, frozen=True):
    """What a run of Penstock needs to know; `url_source` tells a person where the URL came from."""

    url: str = DEFAULT_URL
    url_source: str = "the default"


class SettingsFile(msgspec.Struct, frozen=True):
    """Everything a settings file may say."""

    url: str | None = None


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
