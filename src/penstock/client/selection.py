"""Validation of ids, outcomes and states that select messages."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.domain.errors import InvalidInput
from penstock.domain.identity import check_id
from penstock.domain.lifecycle import OUTCOMES, State
from penstock.domain.validation import check_list, nearest, shown


def outcome_of(value: str | None) -> State | None:
    if value is None:
        return None
    if value not in OUTCOMES:
        known = [outcome.value for outcome in OUTCOMES]
        raise InvalidInput(f"{shown(value)} is not an outcome ({', '.join(known)}){nearest(str(value), known)}")
    return State(value)


def state_of(value: str) -> State:
    known = [state.value for state in State]
    if value not in known:
        raise InvalidInput(f"{shown(value)} is not a state ({', '.join(known)}){nearest(str(value), known)}")
    return State(value)


def ids_of(ids: Iterable[str] | str) -> list[str]:
    is_one = isinstance(ids, str) or not isinstance(ids, Iterable)
    several = [ids] if is_one else check_list("this call takes a message id or a list of them", ids)
    return [check_id(one) for one in several]
