"""From a URL to an engine."""

from __future__ import annotations

import random as random_module
from collections.abc import Callable
from urllib.parse import parse_qsl, urlencode, urlsplit

import redis

from penstock.domain.errors import InvalidUrl
from penstock.domain.validation import check_seconds, shown
from penstock.engines.redis.connection import RedisDatabase, no_retry
from penstock.engines.redis.durability import parse
from penstock.engines.redis.engine import RedisEngine

PREFIX = "penstock"
# How long a call waits for the disk or the replicas.
CONFIRM_SECONDS = 5
_OWN = ("prefix", "durability", "confirm_seconds")


def open_redis(
    url: str,
    clock: Callable[[], int] | None = None,
    random: Callable[[], float] = random_module.random,
    busy_seconds: float = 10,
) -> RedisEngine:
    """Connect with the first call. Without a clock the server's time counts."""
    check_seconds("busy_seconds", busy_seconds)
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    own = {name: options.pop(name) for name in _OWN if name in options}
    prefix = own.get("prefix", PREFIX)
    if not prefix or "{" in prefix or "}" in prefix:
        raise InvalidUrl(f"prefix {shown(prefix)} must be a text without braces: it begins the name of every key")
    durability = parse(own.get("durability", "memory"), own.get("confirm_seconds", str(CONFIRM_SECONDS)))
    scheme = "unix" if parts.scheme == "redis+unix" else parts.scheme
    query = f"?{urlencode(options)}" if options else ""
    address = f"{scheme}://{parts.netloc}{parts.path}{query}"
    try:
        client = redis.Redis.from_url(
            address,
            socket_timeout=busy_seconds + durability.confirm_seconds,
            socket_connect_timeout=busy_seconds,
            retry=no_retry(),
            protocol=2,
        )
    except ValueError as error:
        raise InvalidUrl(f"not a URL of a Redis store: {error}") from None
    where = parts.path if scheme == "unix" else f"{parts.hostname or 'localhost'}:{parts.port or 6379}"
    name = f"the Redis store at {where}"
    return RedisEngine(RedisDatabase(client, name, prefix, clock, random, durability))
