"""Ids computed for many messages equal those computed singly."""

from __future__ import annotations

import random

import pytest

from penstock.domain.identity import SALT_BITS, made_id
from penstock.engines.identities import made_ids

pytest.importorskip("pyarrow", reason="ids of many are Arrow: needs pyarrow")


@pytest.mark.parametrize("seed", range(5))
def test_many_ids_are_those_of_each_alone(seed: int) -> None:
    chance = random.Random(seed)
    salt = chance.randrange(2**SALT_BITS)
    sends = [chance.randrange(2**52) for _ in range(chance.randrange(1, 40))]
    times = [at for at in sends for _ in range(chance.randrange(1, 4))]
    positions = [chance.randrange(1, 2**48) for _ in times]
    expected = [made_id(at, salt, position) for at, position in zip(times, positions, strict=True)]
    assert made_ids(times, salt, positions).to_pylist() == expected
