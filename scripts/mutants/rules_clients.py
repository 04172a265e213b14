"""Faults in the client, the workers and the protocols."""

from __future__ import annotations

from scripts.mutants.rule import Rule

RULES = (
    Rule(
        "a producer sends again what a lost reply had answered for",
        "if not (self._was_tried and not self._is_safe and self._is_stored(engine, queue)):",
        "if True:",
        ("tests/engines/postgres/test_lost_replies.py",),
    ),
    Rule(
        "a cancelled receive keeps its messages",
        "return sorted(filter(Call.drop_cancelled, self.calls), key=place_of)",
        "return sorted(self.calls, key=place_of)",
        ("tests/client/test_cancellation.py",),
    ),
    Rule(
        "a failed handler counts as done",
        "return make_settle(Event.NAK, delivery, reason_text(error)",
        "return make_settle(Event.ACK, delivery, reason_text(error)",
        ("tests/workers/test_handlers.py",),
    ),
    Rule(
        "a receive that was cancelled too late keeps its messages",
        "discard(outcome)",
        "pass",
        ("tests/client/test_cancellation.py",),
    ),
    Rule(
        "a worker does not renew its leases",
        "RENEW_SHARE = 1 / 3",
        "RENEW_SHARE = 9",
        ("tests/workers/test_leases.py",),
    ),
    Rule(
        "a worker sends heartbeats too late",
        "BEAT_SHARE = 0.6",
        "BEAT_SHARE = 6.0",
        ("tests/workers/test_leases.py", "tests/faults/test_workers.py"),
    ),
    Rule(
        "a worker forgets what it could not settle",
        "for step in steps: step.undo()",
        "pass",
        ("tests/workers/test_outages.py",),
    ),
    Rule(
        "Redis protocol: an ack that was refused answers 1",
        "return int(settled.ok)",
        "return 1",
        ("tests/servers/resp/test_message_leases.py", "tests/laws/test_law_10_interfaces_agree.py"),
    ),
    Rule(
        "Redis protocol: what a vanished client was given is not given back",
        "self.store.executor.release(receipt)",
        "pass",
        ("tests/servers/resp/test_blocking.py", "tests/servers/resp/test_failures.py"),
    ),
    Rule(
        "HTTP: a settlement that was refused answers 200",
        "if not result.ok: raise REFUSALS[str(result.error)](result.detail)",
        "if False:\n        raise REFUSALS[str(result.error)](result.detail)",
        ("tests/servers/http/test_deliveries.py",),
    ),
    Rule(
        "HTTP: a wrong position settles another message",
        "if one.position not in (None, position):",
        "if False:",
        ("tests/servers/http/test_deliveries.py",),
    ),
)
