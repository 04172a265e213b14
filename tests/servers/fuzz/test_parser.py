"""The parser alone: however the bytes are cut, the same commands come out, and nothing but its own error is raised."""

from __future__ import annotations

import os

from hypothesis import given
from hypothesis import strategies as st

from penstock.servers.resp.parser import Parser
from penstock.settings import Limits
from tests.servers.clients.wire import frame
from tests.servers.fuzz.frames import Mutator

INPUTS = 100_000
SEED = int(os.environ.get("PENSTOCK_FUZZ_SEED", "20261115"))

commands = st.lists(st.lists(st.binary(max_size=200), min_size=1, max_size=8), min_size=1, max_size=6)


def parsed(pieces: list[bytes], trusted: bool = True) -> tuple[list[list[bytes]], str | None]:
    parser = Parser(Limits())
    parser.trust(trusted)
    found = [command for piece in pieces for command in parser.feed(piece)]
    return found, None if parser.error is None else str(parser.error)


@given(commands, st.data())
def test_whole_commands_come_out_however_they_are_cut(sent: list[list[bytes]], data: st.DataObject) -> None:
    stream = b"".join(frame(*command) for command in sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert parsed(pieces) == (sent, None)


@given(st.binary(max_size=300), st.data())
def test_any_bytes_give_the_same_however_they_are_cut(stream: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert parsed(pieces) == parsed([stream])


def test_mutated_frames_give_the_same_however_they_are_cut() -> None:
    print(f"seed {SEED}")
    mutator = Mutator(SEED)
    broken = 0
    for number in range(INPUTS):
        stream = mutator.input()
        at_once = parsed([stream], trusted=bool(number % 2))
        assert parsed(mutator.split(stream), trusted=bool(number % 2)) == at_once, f"seed {SEED}, {number}: {stream!r}"
        broken += at_once[1] is not None
    # The mutations must bite, and must leave enough alive to reach the commands behind the parser.
    assert INPUTS * 0.1 < broken < INPUTS * 0.7
