"""Users: passwords, rights, patterns."""

from __future__ import annotations

import time

import pytest

from penstock.domain.errors import InvalidInput
from penstock.servers.access import (
    Right,
    Users,
    hash_token,
    make_token,
    make_user,
    make_users,
)
from penstock.servers.glob_pattern import matches
from penstock.servers.login_rate_limit import LoginRateLimit
from penstock.servers.passwords import hash_password, verify


def test_a_password_is_kept_as_a_salted_hash() -> None:
    stored = hash_password("secret")
    assert "secret" not in stored
    assert stored != hash_password("secret")
    assert verify(b"secret", stored)
    assert not verify(b"Secret", stored)


def test_right_and_wrong_passwords() -> None:
    users = Users(make_users("secret", {}))
    assert users.need_password
    assert not users.remembers("default", b"secret")
    assert users.check("default", b"secret")
    assert users.remembers("default", b"secret")
    assert not users.remembers("default", b"other")
    assert not users.check("default", b"other")
    assert not users.check("nobody", b"secret")
    users.replace(make_users("changed", {}))
    assert not users.remembers("default", b"secret")
    assert not users.check("default", b"secret")


def test_without_password_everybody_here_is_the_default_user() -> None:
    assert not Users(make_users(None, {})).need_password


def test_with_users_but_no_password_there_is_no_default_user() -> None:
    users = Users(make_users(None, {"a": {"password_hash": hash_password("x"), "queues": ["*"], "rights": ["send"]}}))
    assert users.need_password
    assert users.find("default") is None
    assert not users.check("default", b"")


def test_what_is_not_allowed_is_refused() -> None:
    user = make_user("a", None, ["orders", "temp-*"], ["send", "look"])
    assert user.may(Right.SEND, "orders")
    assert user.may(Right.LOOK, "temp-7")
    assert not user.may(Right.RECEIVE, "orders")
    assert not user.may(Right.SEND, "orders2")
    assert not user.may(Right.SEND, "Orders")
    assert not make_user("b", None, [], ["send"]).may(Right.SEND, "orders")


@pytest.mark.parametrize(
    ("pattern", "name", "is_match"),
    [
        ("*", "", True),
        ("*", "anything", True),
        ("a?c", "abc", True),
        ("a?c", "ac", False),
        ("a*c", "abcbc", True),
        ("a*c", "abcb", False),
        ("*b*", "abc", True),
        ("[a]", "a", False),
        ("[a]", "[a]", True),
        (".*", "x", False),
        ("", "", True),
        ("", "a", False),
        ("a**", "a", True),
    ],
)
def test_patterns(pattern: str, name: str, is_match: bool) -> None:
    assert matches(pattern, name) is is_match


def test_a_nasty_pattern_is_matched_in_time() -> None:
    began = time.process_time()
    assert not matches("*a" * 500_000, "a" * 255)
    assert not matches("*a" * 200 + "b", "a" * 255)
    assert time.process_time() - began < 1
    with pytest.raises(InvalidInput, match="longer than"):
        make_user("a", None, ["*a" * 1000], ["send"])


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"password_hash": "secret"}, "penstock serve --hash-password"),
        ({"password_hash": "scrypt$a$b"}, "penstock serve --hash-password"),
        ({"rights": ["recieve"]}, "did you mean 'receive'"),
        ({"rights": ["nothing"]}, "is none of"),
        ({"role": "operater"}, "did you mean 'operator'"),
        ({"role": "admin", "rights": ["look"]}, "both a role and rights"),
        ({"token_hash": "secret"}, "penstock serve --make-token"),
    ],
)
def test_wrong_users_are_named(given: dict[str, object], told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        make_users(None, {"a": {"password_hash": None, "queues": [], "rights": [], **given}})


def test_guessing_is_slowed_down_by_address() -> None:
    rate_limit = LoginRateLimit(3)
    for _ in range(3):
        assert rate_limit.allows("a")
        rate_limit.note_failure("a")
    assert not rate_limit.allows("a")
    assert rate_limit.allows("b")


def test_a_role_is_a_bundle_of_rights() -> None:
    observer, operator, admin = (make_user("a", None, [], role=role) for role in ("observer", "operator", "admin"))
    assert [one.role for one in (observer, operator, admin)] == ["observer", "operator", "admin"]
    assert observer.may(Right.LOOK, "any")
    assert not any(observer.may(right) for right in (Right.SEND, Right.RECEIVE, Right.OPERATE, Right.MANAGE))
    assert operator.may(Right.OPERATE, "any")
    assert not operator.may(Right.MANAGE, "any")
    assert admin.may(Right.MANAGE, "any")
    assert make_user("a", None, ["*"], ["look", "send"]).role is None


def test_who_manages_operates() -> None:
    assert make_user("a", None, ["*"], ["manage"]).may(Right.OPERATE, "any")


def test_a_token_is_a_password_that_needs_no_name() -> None:
    token = make_token()
    users = Users(
        make_users(
            None, {"ci": {"password_hash": None, "queues": [], "token_hash": hash_token(token), "role": "operator"}}
        )
    )
    found = users.find_by_token(token)
    assert found is not None
    assert found.name == "ci"
    assert users.find_by_token(token + "x") is None
    assert users.check("ci", token.encode())
    assert not users.check("ci", b"other")
    assert users.need_password
