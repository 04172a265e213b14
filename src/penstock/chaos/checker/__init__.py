"""The checker: finds the laws that the merged histories of a run violate.

It knows the laws and the events of `penstock.chaos.history`, and imports nothing else of Penstock, so that it cannot
share a fault with the engines, the client or the domain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from penstock.chaos.checker import (
    addresses,
    attempts,
    endings,
    exactly_once,
    leases,
    order,
    sends,
    streams,
    times,
    trails,
)
from penstock.chaos.checker.timeline import Timeline, Violation
from penstock.chaos.history import Event

Law = Callable[[Timeline], Iterator[Violation]]

LAWS: tuple[Law, ...] = (
    sends.acknowledged_sends_end,
    sends.drained_queues_are_empty,
    sends.only_what_was_sent_is_seen,
    sends.contents_are_as_sent,
    sends.a_send_is_one_message,
    sends.a_call_sends_all_or_nothing,
    leases.one_live_lease,
    leases.stale_tokens_are_refused,
    leases.a_lease_ends,
    endings.one_ending,
    endings.nothing_returns_after_its_end,
    endings.removed_messages_are_gone,
    endings.dead_letters_have_a_cause,
    endings.one_dead_letter,
    times.never_early,
    times.never_late,
    attempts.attempts_grow,
    attempts.attempts_have_no_gaps,
    attempts.retries_are_bounded,
    attempts.at_most_once_is_not_redelivered,
    trails.counts_conserve,
    trails.trails_are_legal,
    trails.trails_are_complete,
    streams.positions_grow,
    streams.followers_miss_nothing,
    exactly_once.batches_end_once,
    exactly_once.ticks_are_sent_once,
    order.keys_are_in_order,
    order.priorities_are_kept,
    addresses.an_address_has_one_live_message,
    addresses.a_free_address_is_not_refused,
)


def check(events: Iterable[Event]) -> list[Violation]:
    timeline = Timeline(events)
    return [violation for law in LAWS for violation in law(timeline)]
