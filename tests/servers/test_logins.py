"""Logins: limited before anything is computed, in turns, and few at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.domain.errors import InvalidInput
from penstock.servers import login_rate_limit, logins, passwords
from penstock.servers.access import Users, hash_token, make_user
from penstock.servers.logins import MAX_AT_ONCE, MAX_UNDER_WAY, Logins, TooManyLogins
from penstock.servers.passwords import hash_password, verify
from tests.servers.hashes import older_hash

pytestmark = pytest.mark.anyio
TOKEN = "a token that nobody guesses"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def users() -> Users:
    return Users([make_user("ann", older_hash("right"), ["*"], ["send"], token_hash=hash_token(TOKEN))])


@pytest.fixture
def checks(users: Users, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The passwords that were looked at, in order."""
    seen: list[bytes] = []
    check = users.check

    def count(name: str, password: bytes) -> bool:
        seen.append(password)
        return check(name, password)

    monkeypatch.setattr(users, "check", count)
    return seen


async def outcome(login: Any) -> str:
    try:
        return "wrong" if await login is None else "right"
    except TooManyLogins:
        return "refused"


async def test_a_flood_is_refused_before_anything_is_computed(
    users: Users, checks: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A busy machine may need more than the usual second for the five checks.
    monkeypatch.setattr(login_rate_limit, "WINDOW_SECONDS", 60.0)
    door = Logins(users, 5)
    flood = [asyncio.ensure_future(outcome(door.by_password("a", "ann", b"guess %d" % n))) for n in range(100)]
    told = await asyncio.gather(*flood)
    assert told.count("wrong") == len(checks) == 5
    assert told.count("refused") == 95
    assert await outcome(door.by_password("a", "ann", b"right")) == "refused", "not known yet"
    assert await outcome(door.by_password("a", "ann", TOKEN.encode())) == "right"
    assert door.by_token("a", TOKEN) is users.find("ann")


async def test_other_addresses_take_turns_with_a_flood(users: Users, checks: list[bytes]) -> None:
    door = Logins(users, 20)
    flood = [asyncio.ensure_future(outcome(door.by_password("a", "ann", b"guess %d" % n))) for n in range(100)]
    await asyncio.sleep(0)
    assert await outcome(door.by_password("b", "ann", b"right")) == "right"
    assert checks.index(b"right") <= MAX_AT_ONCE
    assert sum(one.done() for one in flood) < 95, "the flood has not been worked off before"
    await asyncio.gather(*flood)


async def test_many_connections_of_one_program_share_a_check(users: Users, checks: list[bytes]) -> None:
    door = Logins(users, 5)
    told = await asyncio.gather(*(outcome(door.by_password("a", "ann", b"right")) for _ in range(100)))
    assert told == ["right"] * 100
    assert len(checks) == 1
    assert await outcome(door.by_password("a", "ann", b"right")) == "right"
    assert len(checks) == 1, "what was right is remembered"


async def test_few_are_under_way_whatever_the_number_of_addresses(users: Users, checks: list[bytes]) -> None:
    door = Logins(users, 5)
    flood = [outcome(door.by_password(f"10.0.0.{n}", "ann", b"guess %d" % n)) for n in range(MAX_UNDER_WAY + 20)]
    told = await asyncio.gather(*flood)
    assert (told.count("wrong"), told.count("refused")) == (MAX_UNDER_WAY, 20)
    assert await outcome(door.by_password("10.1.0.1", "ann", b"right")) == "right"


async def test_who_goes_away_leaves_the_others_their_check(users: Users) -> None:
    door = Logins(users, 5)
    first, second = [asyncio.ensure_future(outcome(door.by_password("a", "ann", b"right"))) for _ in range(2)]
    await asyncio.sleep(0)
    first.cancel()
    assert await second == "right"
    assert await outcome(door.by_password("a", "ann", b"other")) == "wrong"


async def test_a_password_that_was_changed_meanwhile_is_not_remembered(
    users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(password: bytes, stored: str) -> bool:
        users.replace([make_user("ann", older_hash("new"), ["*"], ["send"])])
        return verify(password, stored)

    monkeypatch.setattr("penstock.servers.access.verify", change)
    await Logins(users, 5).by_password("a", "ann", b"right")
    assert not users.remembers("ann", b"right")


def test_new_hashes_have_the_parameters_of_today_and_older_ones_are_good() -> None:
    stored = hash_password("secret")
    assert stored.startswith("scrypt$n=131072,r=8,p=1$")
    assert verify(b"secret", stored)
    assert not verify(b"Secret", stored)
    assert verify(b"secret", older_hash("secret"))
    assert make_user("a", older_hash("secret"), [], ["send"]).password_hash


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ([], "memory$"),
        ([passwords.keep_password("a")], "memory$"),
        ([older_hash("a"), "scrypt$n=131072,r=8,p=1$AAAA$AAAA"], "scrypt$n=131072,r=8,p=1$"),
        ([older_hash("a")], "scrypt$n=16384,r=8,p=1$"),
    ],
)
def test_a_user_that_does_not_exist_takes_as_long_as_one_that_does(stored: list[str], expected: str) -> None:
    assert passwords.stand_in(stored).startswith(expected)


@pytest.mark.parametrize("changed", ["n=1048577", "n=2097152", "n=8", "r=0", "r=64", "p=0", "p=99", "q=1"])
def test_a_hash_that_would_cost_too_much_or_nothing_is_refused(changed: str) -> None:
    fields = {"n": "n=16384", "r": "r=8", "p": "p=1", changed[0]: changed}
    stored = older_hash("x").replace("scrypt$", f"scrypt${','.join(fields.values())}$")
    with pytest.raises(InvalidInput, match="is no hash"):
        make_user("a", stored, [], ["send"])


def test_checks_run_on_few_threads() -> None:
    assert logins._threads._max_workers == MAX_AT_ONCE <= 2
