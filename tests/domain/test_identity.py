"""Message ids: UUIDs that encode the position."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.domain.errors import InvalidInput
from penstock.domain.identity import SALT_BITS, check_id, made_id, made_ids, made_prefix, position_of, random_id

times = st.integers(0, (1 << 48) * 1000 - 1)
salts = st.integers(0, (1 << SALT_BITS) - 1)
positions = st.integers(0, (1 << 48) - 1)


@given(created_at=times, salt=salts, position=positions)
def test_a_made_id_is_a_uuid_of_version_7_with_its_time(created_at: int, salt: int, position: int) -> None:
    made = uuid.UUID(made_id(created_at, salt, position))
    assert made.version == 7
    assert made.variant == uuid.RFC_4122
    assert made.int >> 80 == created_at // 1000


@given(created_at=times, salt=salts, position=positions)
def test_the_position_is_read_back_from_a_made_id(created_at: int, salt: int, position: int) -> None:
    made = made_id(created_at, salt, position)
    assert position_of(made) == position
    assert check_id(made) == made
    assert made.startswith(made_prefix(created_at, salt))


@given(created_at=times, salts=st.tuples(salts, salts), positions=st.tuples(positions, positions))
def test_made_ids_are_equal_only_when_all_parts_are(
    created_at: int, salts: tuple[int, int], positions: tuple[int, int]
) -> None:
    first, second = (made_id(created_at, salt, position) for salt, position in zip(salts, positions, strict=True))
    assert (first == second) == ((salts[0], positions[0]) == (salts[1], positions[1]))


@given(created_at=times, salt=salts, first=st.integers(0, (1 << 48) - 10_001), count=st.integers(1, 10_000))
@example(created_at=17, salt=23, first=4_090, count=8_200)
def test_ids_of_a_range_equal_the_single_ids(created_at: int, salt: int, first: int, count: int) -> None:
    positions = range(first, first + count)
    assert made_ids(created_at, salt, first, positions[-1]) == [made_id(created_at, salt, one) for one in positions]


@given(first=times, second=times, salt=salts, position=positions)
def test_ids_sort_by_time(first: int, second: int, salt: int, position: int) -> None:
    if first // 1000 < second // 1000:
        assert made_id(first, salt, position) < made_id(second, salt, 0)
        assert random_id(first, (1 << 74) - 1) < random_id(second, 0)


@given(created_at=times, bits=st.integers(0, (1 << 74) - 1), others=st.integers(0, (1 << 74) - 1))
def test_a_random_id_is_a_uuid_of_version_7_that_keeps_all_its_bits(created_at: int, bits: int, others: int) -> None:
    made = uuid.UUID(random_id(created_at, bits))
    assert (made.version, made.variant, made.int >> 80) == (7, uuid.RFC_4122, created_at // 1000)
    assert (random_id(created_at, bits) == random_id(created_at, others)) == (bits == others)


@given(value=st.uuids())
def test_every_spelling_of_a_uuid_is_the_same_id(value: uuid.UUID) -> None:
    plain = str(value)
    for spelling in (value, plain, plain.upper(), value.hex, f"{{{plain}}}", value.urn):
        assert check_id(spelling) == plain


@pytest.mark.parametrize(
    "value",
    ["", "7", "not-a-uuid", "g" * 32, "7d444840-9dc0-11d1-b245-5ffdce74fad", 7, None, b"\x00" * 16, ["a"]],
)
def test_an_invalid_uuid_is_refused_and_named(value: Any) -> None:
    with pytest.raises(InvalidInput, match="UUID"):
        check_id(value)


@pytest.mark.parametrize(
    "value", ["7d4448409dc011d1b2455ffdce74fa_2", "7d4448409dc011d1b2455ffdce74fad\u0663", " " * 31 + "1"]
)
def test_non_ascii_digits_are_refused(value: str) -> None:
    with pytest.raises(InvalidInput, match="UUID"):
        check_id(value)
