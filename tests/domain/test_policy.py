"""The table of policy fields: the defaults of the design, and checks that follow from each row."""

from __future__ import annotations

import typing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.errors import InvalidPolicy
from penstock.domain.policy import FIELDS, Policy, PolicyField, check_changes
from tests.domain.policy_values import accepted, refused

DEFAULTS = {
    "lease_seconds": 30,
    "max_retries": 7,
    "backoff_base_seconds": 10,
    "backoff_factor": 2,
    "backoff_jitter_seconds": 5,
    "backoff_max_seconds": 3_600,
    "delay_seconds": 0,
    "ttl_seconds": None,
    "delivery": "at_least_once",
    "shards": 1,
    "ordered": False,
    "primary_group": "default",
    "history_seconds": 86_400,
    "group_idle_seconds": 7 * 86_400,
    "dead_letter_seconds": 91 * 86_400,
    "max_payload_bytes": 16 * 1_048_576,
    "paused": False,
}


def test_the_defaults_are_those_of_the_design() -> None:
    policy = Policy()
    assert {field: getattr(policy, field) for field in Policy.__struct_fields__} == DEFAULTS


def test_every_default_passes_its_own_check() -> None:
    assert check_changes(DEFAULTS) == DEFAULTS


def test_every_field_has_a_check_and_no_check_is_left_over() -> None:
    for field in Policy.__struct_fields__:
        with pytest.raises(InvalidPolicy, match=field):
            check_changes({field: object()})


@pytest.mark.parametrize("field", FIELDS.values(), ids=FIELDS)
def test_bounds_of_a_row_are_the_bounds_of_its_check(field: PolicyField) -> None:
    assert field.description
    assert field.default is None or field.check(field.default) == field.default
    for value in accepted(field):
        assert check_changes({field.name: value}) == {field.name: value}
    for value in refused(field):
        with pytest.raises(InvalidPolicy, match=field.name):
            check_changes({field.name: value})


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text()


@given(field=st.sampled_from(Policy.__struct_fields__), value=scalars)
def test_accepted_values_have_the_type_of_the_field(field: str, value: object) -> None:
    try:
        checked = check_changes({field: value})[field]
    except InvalidPolicy:
        return  # refused values are tested in the conformance suite
    hint = typing.get_type_hints(Policy)[field]
    allowed = {*typing.get_args(hint), hint}
    if field == "delivery":
        assert checked in ("at_least_once", "at_most_once")
    else:
        assert any(kind is type(checked) or (kind is float and type(checked) is int) for kind in allowed)


def test_one_invalid_field_refuses_all_changes() -> None:
    with pytest.raises(InvalidPolicy, match="shards"):
        check_changes({"lease_seconds": 5, "shards": 0})


def test_a_typo_is_answered_with_the_nearest_field() -> None:
    with pytest.raises(InvalidPolicy, match="did you mean 'backoff_max_seconds'"):
        check_changes({"backof_max_second": 5})
