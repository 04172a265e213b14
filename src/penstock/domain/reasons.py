"""Reasons in the audit trail and in dead letters, where nobody gave one. PostgreSQL has the same texts in its
functions; a test compares them."""

from __future__ import annotations

from penstock.domain.lifecycle import Event

# The reason of an event that time or an operator caused.
OF_EVENT = {
    Event.EXPIRE: "expires_at passed",
    Event.DEADLINE: "deadline_at passed",
    Event.BATCH_CANCEL: "its batch was cancelled",
    Event.LEASE_END: "the lease ended",
    Event.RELEASE: "the lease ended before its turn came",
    Event.REMOVE: "it was removed",
}
CLAIMED_BY_FORCE = "claimed by force"
PASSED_BY_SEEK = "the group was moved past it"
RELEASED_BEHIND = "behind message at position {}, which is tried again"
TAKEN_OVER = "taken over by {}"
CONSUMER_GONE = "consumer {} is gone"
REDRIVEN = "was {}"
TRIMMED_UNREAD = "group {} was idle: messages up to position {} were trimmed before it read them"
