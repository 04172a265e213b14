"""Stream entries: messages and their ids in the form of stream commands.

An id is `milliseconds-position`: when the message was sent, and its position in the log. The position alone identifies
the message, and both together sort as in Redis. The fields of XADD are stored as a JSON object where possible, so that
other interfaces can read them; a message of another interface has one field, `payload`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from penstock.domain.message import BYTES, Message
from penstock.domain.timestamps import EPOCH
from penstock.engines.contract import CONTENT_TYPE, CREATED_AT, PAYLOAD, POSITION, Row
from penstock.servers.resp.encoder import Encoded
from penstock.servers.resp.errors import CommandError

FIELDS_JSON = "application/vnd.penstock.fields+json"
FIELDS_BINARY = "application/vnd.penstock.fields+msgpack"
PAYLOAD_FIELD = b"payload"
# Fields are stored as JSON, which people can read. Characters that JSON escapes take up to six times their size, so
# large fields with such characters are stored in binary: otherwise a queue would refuse entries below its limit.
READABLE_BYTES = 64 * 1024
# Bytes of JSON syntax around each name and value.
JSON_OVERHEAD = 4
BEYOND = 1 << 62
# In microseconds this still fits into 64 bits.
LAST_MILLISECOND = BEYOND // 1000
MICROSECOND = EPOCH.resolution
is_whole_id = re.compile(rb"[0-9]{1,18}-[0-9]{1,18}").fullmatch
Entry = list[object]

_decode_object = msgspec.json.Decoder(dict[str, str]).decode
_decode_pairs = msgspec.msgpack.Decoder(list[bytes]).decode


def pack(fields: list[bytes]) -> tuple[bytes, str | None]:
    """Encode the fields of an entry: the payload and its content type."""
    if len(fields) == 2 and fields[0] == PAYLOAD_FIELD:
        return fields[1], None
    try:
        words = [field.decode() for field in fields]
    except UnicodeDecodeError:
        words = []
    names = words[::2]
    if words and len(set(names)) == len(names):
        encoded = msgspec.json.encode(dict(zip(names, words[1::2], strict=True)))
        if len(encoded) <= READABLE_BYTES or len(encoded) <= sum(map(len, fields)) + JSON_OVERHEAD * len(fields):
            return encoded, FIELDS_JSON
    return msgspec.msgpack.encode(fields), FIELDS_BINARY


def unpack(payload: bytes, content_type: str | None) -> list[bytes]:
    if content_type == FIELDS_JSON:
        return [word.encode() for pair in _decode_object(payload).items() for word in pair]
    if content_type == FIELDS_BINARY:
        return _decode_pairs(payload)
    return [PAYLOAD_FIELD, payload]


def entry_id(created_at: int, position: int) -> str:
    return f"{created_at // 1000}-{position}"


def row_names(rows: Sequence[Row]) -> list[bytes]:
    """The ids of entries."""
    return [b"%d-%d" % (row[CREATED_AT] // 1000, row[POSITION]) for row in rows]


def row_entries(rows: Sequence[Row], names: Sequence[bytes]) -> Encoded:
    """An array of entries in wire format, which is the same in both versions of the protocol."""
    return Encoded(b"*%d\r\n%b" % (len(rows), b"".join(map(_encode_entry, rows, names))))


def _encode_entry(row: Row, name: bytes) -> bytes:
    payload = row[PAYLOAD]
    if row[CONTENT_TYPE] not in (FIELDS_JSON, FIELDS_BINARY):
        entry = b"*2\r\n$%d\r\n%b\r\n*2\r\n$7\r\npayload\r\n$%d\r\n%b\r\n"
        return entry % (len(name), name, len(payload), payload)
    fields = unpack(payload, row[CONTENT_TYPE])
    encoded = b"".join([b"$%d\r\n%b\r\n" % (len(field), field) for field in fields])
    return b"*2\r\n$%d\r\n%b\r\n*%d\r\n%b" % (len(name), name, len(fields), encoded)


def message_entry(message: Message) -> Entry:
    content_type = None if message.content_type == BYTES else message.content_type
    return [message_entry_id(message), unpack(message.payload, content_type)]


def message_entry_id(message: Message) -> str:
    assert message.position is not None
    return entry_id((message.created_at - EPOCH) // MICROSECOND, message.position)


class Bound(msgspec.Struct, frozen=True):
    """One end of a range: a time in milliseconds and, if given, a position."""

    milliseconds: int
    position: int | None
    is_open: bool = False  # exclusive


def read_bound(word: bytes) -> Bound:
    is_open = word[:1] == b"("
    milliseconds, position = read_parts(word[1:] if is_open else word)
    return Bound(milliseconds, position, is_open)


def read_parts(word: bytes) -> tuple[int, int | None]:
    milliseconds, dash, position = word.partition(b"-")
    if not milliseconds.isdigit() or (dash and not position.isdigit()) or len(word) > 41:
        raise CommandError("ERR Invalid stream ID specified as stream command argument")
    # Ids of Redis have more bits than positions: clamp them, nothing lies beyond.
    return min(int(milliseconds), LAST_MILLISECOND), min(int(position), BEYOND) if dash else None
