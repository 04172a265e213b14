"""The lifecycle table is complete, and every decision on a leased message is one of its transitions."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.lifecycle import (
    DEAD_OUTCOMES,
    LIVE,
    OUTCOMES,
    TABLE,
    Event,
    State,
    is_legal,
)
from penstock.domain.policy import Policy
from penstock.domain.settlement import Attempt, Decision, decide, lease_end
from scripts import reference

SECOND = 1_000_000


def test_every_state_is_either_live_or_an_outcome() -> None:
    assert set(LIVE) | set(OUTCOMES) == set(State)
    assert not set(LIVE) & set(OUTCOMES)
    assert set(OUTCOMES) - set(DEAD_OUTCOMES) == {State.SUCCEEDED}


def test_every_event_and_every_state_is_in_the_table() -> None:
    assert {row.event for row in TABLE} == set(Event)
    assert {row.target for row in TABLE} == set(State)


def test_no_transition_is_listed_twice_with_the_same_condition() -> None:
    steps = [(source, row.event, row.condition) for row in TABLE for source in row.sources]
    assert len(steps) == len(set(steps))


def test_every_state_can_be_reached_and_every_live_state_can_be_left() -> None:
    reached: set[State | None] = {None}
    while more := {row.target for row in TABLE if reached & set(row.sources)} - reached:
        reached |= more
    assert reached == {None, *State}
    for state in LIVE:
        assert any(state in row.sources and row.target in OUTCOMES for row in TABLE)


def test_an_outcome_is_only_left_by_an_operator() -> None:
    leaving = {row.event for row in TABLE if set(row.sources) & set(OUTCOMES)}
    assert leaving == {Event.REDRIVE, Event.SEEK}


def test_a_message_that_succeeded_is_never_redriven() -> None:
    assert not any(is_legal(State.SUCCEEDED, Event.REDRIVE, state) for state in State)


@pytest.mark.parametrize(
    ("source", "event", "target"),
    [
        (None, Event.RECEIVE, State.LEASED),
        (State.HELD, Event.RECEIVE, State.LEASED),
        (State.READY, Event.ACK, State.SUCCEEDED),
        (State.LEASED, Event.ACK, State.READY),
        (State.SUCCEEDED, Event.NAK, State.READY),
        (State.LEASED, Event.BATCH_CANCEL, State.CANCELLED),
        (State.EXPIRED, Event.EXPIRE, State.EXPIRED),
    ],
)
def test_transitions_that_are_not_in_the_table_are_illegal(source: State | None, event: Event, target: State) -> None:
    assert not is_legal(source, event, target)


def test_the_page_shows_every_transition() -> None:
    page = reference.lifecycle()
    for row in TABLE:
        for source in row.sources:
            assert f"    {source or '[*]'} --> {row.target}: {row.event}" in page


# -- settlement.decide takes no other steps ----------------------------------------------------------------------

moments = st.integers(0, 10_000).map(lambda seconds: seconds * SECOND)
attempts = st.builds(
    Attempt,
    attempt=st.integers(1, 20),
    expires_at=st.none() | moments,
    deadline_at=st.none() | moments,
    batch_cancelled=st.booleans(),
)
policies = st.builds(
    Policy,
    max_retries=st.none() | st.integers(0, 10),
    delivery=st.sampled_from(["at_least_once", "at_most_once"]),
    backoff_base_seconds=st.floats(0, 1_000),
    backoff_factor=st.floats(1, 100),
    backoff_jitter_seconds=st.floats(0, 100),
    backoff_max_seconds=st.floats(0, 5_000),
)
happening = st.sampled_from(
    [Event.ACK, Event.NAK, Event.REJECT, Event.RESCHEDULE, Event.LEASE_END, Event.RELEASE],
)
chances = st.floats(0, 1, exclude_max=True)
delays = st.none() | st.floats(-1_000, 100_000)


def decision_of(
    event: Event, leased: Attempt, policy: Policy, now: int, chance: float, delay: float | None
) -> Decision:
    return decide(event, leased, policy, now, lambda: chance, delay)


@given(event=happening, leased=attempts, policy=policies, now=moments, chance=chances, delay=delays)
def test_every_decision_is_a_transition_of_the_table(
    event: Event, leased: Attempt, policy: Policy, now: int, chance: float, delay: float | None
) -> None:
    decision = decision_of(event, leased, policy, now, chance, delay)
    assert is_legal(State.LEASED, decision.event, decision.state), decision
    if decision.state in LIVE:
        assert decision.due_at >= now
        assert (decision.state is State.HELD) == (decision.due_at > now)


@given(event=happening, leased=attempts, policy=policies, now=moments, chance=chances, delay=delays)
def test_attempts_count_deliveries_and_start_again_only_by_a_reschedule(
    event: Event, leased: Attempt, policy: Policy, now: int, chance: float, delay: float | None
) -> None:
    decision = decision_of(event, leased, policy, now, chance, delay)
    if decision.state in LIVE:
        expected = {Event.RESCHEDULE: 0, Event.RELEASE: leased.attempt - 1}.get(event, leased.attempt)
        assert decision.attempt == expected


@given(event=happening, leased=attempts, policy=policies, now=moments, chance=chances, delay=delays)
def test_a_message_of_a_cancelled_batch_never_becomes_live_again(
    event: Event, leased: Attempt, policy: Policy, now: int, chance: float, delay: float | None
) -> None:
    decision = decision_of(event, leased, policy, now, chance, delay)
    if leased.batch_cancelled:
        assert decision.state not in LIVE


@given(leased=attempts, policy=policies, now=moments, chance=chances)
def test_an_at_most_once_message_never_becomes_live_by_a_lease_end(
    leased: Attempt, policy: Policy, now: int, chance: float
) -> None:
    decision = decision_of(Event.LEASE_END, leased, policy, now, chance, None)
    if policy.at_most_once:
        assert decision.state in (State.LEASE_EXPIRED, State.EXPIRED)


@given(event=st.sampled_from([Event.NAK, Event.LEASE_END]), leased=attempts, policy=policies, now=moments)
def test_retries_end_exactly_where_the_policy_says(event: Event, leased: Attempt, policy: Policy, now: int) -> None:
    decision = decision_of(event, leased, policy, now, 0.5, None)
    if policy.max_retries is None or leased.attempt <= policy.max_retries:
        in_time = leased.deadline_at is None or leased.deadline_at > now or not policy.at_most_once
        assert decision.state is not State.FAILED or not in_time
    else:
        assert decision.state not in LIVE


@given(leased=attempts, now=moments, delay=st.floats(0, 100_000))
def test_a_reschedule_moves_the_expiry_by_its_delay(leased: Attempt, now: int, delay: float) -> None:
    decision = decision_of(Event.RESCHEDULE, leased, Policy(), now, 0.5, delay)
    if leased.expires_at is not None and not leased.batch_cancelled:
        assert decision.expires_at is not None
        assert decision.expires_at - leased.expires_at == decision.due_at - now


@given(leased=attempts, now=moments, lease_seconds=st.floats(0.001, 10_000))
def test_a_lease_ends_in_time_and_never_before_it_began(leased: Attempt, now: int, lease_seconds: float) -> None:
    end = lease_end(leased, now, lease_seconds)
    assert end > now
    assert timedelta(microseconds=end - now) <= timedelta(seconds=lease_seconds, microseconds=1)
    for limit in (leased.expires_at, leased.deadline_at):
        assert limit is None or limit <= now or end <= limit


@pytest.mark.parametrize(("event", "state"), [(Event.ACK, State.READY), (Event.REJECT, State.FAILED)])
def test_a_decision_outside_of_the_table_is_refused(event: Event, state: State) -> None:
    with pytest.raises(ValueError, match=f"{event} does not lead to {state}"):
        Decision(event, state)


@pytest.mark.parametrize("event", sorted(set(Event) - {"ack", "nak", "reject", "reschedule", "lease_end", "release"}))
def test_decide_refuses_events_that_a_leased_message_cannot_have(event: Event) -> None:
    with pytest.raises(ValueError, match=event):
        decide(event, Attempt(1, None, None), Policy(), 0, lambda: 0.5)
