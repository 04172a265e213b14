"""Bounds that hold for every store and every engine."""

MEBIBYTE = 1 << 20
MAX_NAME_BYTES = 255
MAX_PRIORITY = 1_000_000
MAX_RETRIES = 1_000_000
MAX_BACKOFF_FACTOR = 100
MAX_SHARDS = 1024
MAX_HEADERS_BYTES = 64 * 1024
# SQLite limits one value to a billion bytes; the headers must fit in the same row as the payload.
MAX_PAYLOAD_BYTES = 512 * MEBIBYTE
# A century. Longer durations are mistakes (milliseconds given as seconds) and overflow `datetime`.
MAX_SECONDS = 100 * 366 * 24 * 3600
