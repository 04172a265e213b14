"""The Lua functions decide as `penstock.domain.settlement` does, on every combination of the inputs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import penstock
from penstock.domain.lifecycle import LIVE
from penstock.domain.settlement import is_held, lease_end
from penstock.engines.redis import RedisEngine
from penstock.engines.redis.drafts import policy_text
from tests.engines.postgres.test_settlement_vectors import NOW, RANDOM, Vector, vectors
from tests.engines.redis.server import fresh_store

SECONDS = 0.75
# In the past, now, and at a deadline of the vectors.
ENDS = (NOW - 1, NOW, NOW + 1_000_000)
AT_ONCE = 2_000


@pytest.fixture
def engine() -> Iterator[RedisEngine]:
    with penstock.connect(fresh_store(), clock=lambda: NOW) as store:
        assert isinstance(store.engine, RedisEngine)
        yield store.engine


@pytest.mark.parametrize("ends_at", ENDS)
def test_every_event_on_a_leased_message_is_decided_as_in_python(engine: RedisEngine, ends_at: int) -> None:
    wrong: list[str] = []
    cases = vectors()
    for first in range(0, len(cases), AT_ONCE):
        some = cases[first : first + AT_ONCE]
        found = engine.database.store_call(
            "decide", engine.database.store_key, cases=[_case(one) for one in some], random=RANDOM, seconds=SECONDS,
            ends_at=ends_at,
        )  # fmt: skip
        wrong += [
            f"{one}: {row}, not {_expected(one, ends_at)}"
            for one, row in zip(some, found, strict=True)
            if row != _expected(one, ends_at)
        ]
    assert not wrong, "\n".join(wrong[:20])


def _case(one: Vector) -> dict[str, object]:
    leased = {
        "attempt": one.attempt,
        "expires_at": one.expires_at,
        "deadline_at": one.deadline_at,
        "cancelled": one.leased.batch_cancelled,
    }
    return {
        "event": one.event.value,
        "leased": leased,
        "policy": policy_text(one.policy),
        "delay_seconds": one.delay,
    }


def _expected(one: Vector, ends_at: int) -> list[object]:
    decision = one.decision()
    is_live = decision.state in LIVE
    return [
        decision.event.value.encode(),
        decision.state.value.encode(),
        decision.due_at if is_live else 0,
        decision.attempt if is_live else 0,
        decision.expires_at if is_live else None,
        lease_end(one.leased, NOW, SECONDS),
        int(is_held(one.leased, ends_at, NOW)),
    ]
