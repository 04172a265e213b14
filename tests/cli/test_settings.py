"""Sources of the URL: flag, environment, settings file, default."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.settings import DEFAULT_URL, Settings, load
from tests.cli.cli_runner import Cli


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "penstock.toml"
    path.write_text('url = "sqlite:///file.db"\n')
    return str(path)


def test_flag_overrides_environment_overrides_file(config: str) -> None:
    environment = {"PENSTOCK_URL": "sqlite:///environment.db"}
    assert load(None, None, {}) == Settings(DEFAULT_URL, "the default")
    assert load(None, config, {}) == Settings("sqlite:///file.db", config)
    assert load(None, None, {"PENSTOCK_CONFIG": config}).url == "sqlite:///file.db"
    assert load(None, config, environment) == Settings("sqlite:///environment.db", "PENSTOCK_URL")
    assert load("sqlite:///flag.db", config, environment) == Settings("sqlite:///flag.db", "--url")


def test_an_empty_variable_is_not_set(config: str) -> None:
    assert load(None, config, {"PENSTOCK_URL": ""}).url == "sqlite:///file.db"
    assert load(None, None, {"PENSTOCK_CONFIG": ""}).url == DEFAULT_URL


def test_the_program_uses_the_settings(cli: Cli, config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cli.bare("send", "orders", "1", "--config", config)
    assert (tmp_path / "file.db").exists()
    monkeypatch.setenv("PENSTOCK_URL", "sqlite:///environment.db")
    cli.bare("send", "orders", "1", "--config", config)
    assert (tmp_path / "environment.db").exists()
    monkeypatch.delenv("PENSTOCK_URL")
    cli.bare("send", "orders", "1")
    assert (tmp_path / "penstock.db").exists()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b'ulr = "x"\n', "unknown setting 'ulr'; did you mean 'url'? (known: url, users, resp, http)"),
        (b'url = "x"\nurl = = 2\n', "is not valid TOML: invalid value (at line 2, column 7)"),
        (b"url = 7\n", "`int`"),
        (b"\xff", "byte 0 is not UTF-8"),
    ],
)
def test_an_invalid_settings_file_is_an_error_even_with_a_flag(cli: Cli, content: bytes, told: str) -> None:
    Path("bad.toml").write_bytes(content)
    error = cli.error("send", "orders", "1", "--config", "bad.toml")
    assert "bad.toml" in error
    assert told in error


def test_a_missing_settings_file_is_an_error(cli: Cli) -> None:
    assert "there is no settings file at nowhere.toml" in cli.error("status", "--config", "nowhere.toml")
    assert "cannot be read" in cli.error("status", "--config", ".")
