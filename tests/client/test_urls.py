"""Invalid URLs: errors without passwords."""

from __future__ import annotations

import pytest

import penstock

SECRET = "geheim"
WRONG = [
    "me:geheim@host/db",
    "postgresql//me:geheim@host/db",
    "postgres:/me:geheim@host/db",
    "sqlite://me:geheim@host/x.db",
    "sqlite:///x.db?user=me&password=geheim",
    "postgresql+embedded://me:geheim@host",
    "postgresql://me:geheim@[::1/db",
    "postgresql://me:geheim%zz@host/db",
    "postgresql://me:x/geheim@host/db",
    "postgresql://me:x@geheim@host/db",
    "host=db user=me password=geheim",
    "mysql//me:geheim@host/db",
]


@pytest.mark.parametrize("url", WRONG)
def test_the_error_shows_no_password(url: str) -> None:
    with pytest.raises(penstock.InvalidUrl) as caught:
        penstock.connect(url)
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(caught.value)


def test_the_error_still_names_the_store() -> None:
    with pytest.raises(penstock.InvalidUrl, match=r"me:\*\*\*@host/db"):
        penstock.connect("me:geheim@host/db")
    with pytest.raises(penstock.InvalidUrl, match=r"app\.db"):
        penstock.connect("app.db")
    with pytest.raises(penstock.InvalidUrl, match="unknown"):
        penstock.connect("postgresql://me@host/db?unknown=1")
