"""From a URL to an engine."""

from __future__ import annotations

import random as random_module
from collections.abc import Callable
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

import redis
from redis.cluster import ClusterNode, RedisCluster
from redis.sentinel import Sentinel

from penstock.domain.errors import InvalidUrl
from penstock.domain.validation import check_seconds, shown
from penstock.engines.redis.cluster import Cluster
from penstock.engines.redis.connection import RedisDatabase, no_retry
from penstock.engines.redis.durability import Durability, parse
from penstock.engines.redis.engine import RedisEngine
from penstock.engines.redis.nodes import Nodes, SingleServer
from penstock.engines.redis.sharded.engine import ShardedEngine

PREFIX = "penstock"
PORT = 6379
SENTINEL_PORT = 26379
CLUSTER, SENTINEL = "+cluster", "+sentinel"
# Parameters of a URL of Sentinel: the login at the sentinels themselves.
_SENTINEL_LOGIN = {"sentinel_username": "username", "sentinel_password": "password"}
# How long a call waits for the disk or the replicas.
CONFIRM_SECONDS = 5
_OWN = ("prefix", "durability", "confirm_seconds")


def open_redis(
    url: str,
    clock: Callable[[], int] | None = None,
    random: Callable[[], float] = random_module.random,
    busy_seconds: float = 10,
) -> RedisEngine:
    """Connect with the first call. Without a clock the server's time counts. Calls to a cluster wait that long while a
    primary is replaced."""
    check_seconds("busy_seconds", busy_seconds)
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    own = {name: options.pop(name) for name in _OWN if name in options}
    prefix = own.get("prefix", PREFIX)
    if not prefix or "{" in prefix or "}" in prefix:
        raise InvalidUrl(f"prefix {shown(prefix)} must be a text without braces: it begins the name of every key")
    durability = parse(own.get("durability", "memory"), own.get("confirm_seconds", str(CONFIRM_SECONDS)))
    try:
        if parts.scheme.endswith(SENTINEL):
            name, nodes = _through_sentinels(parts, options, busy_seconds, durability)
        else:
            connect = _cluster if parts.scheme.endswith(CLUSTER) else _single
            name, nodes = connect(parts, f"?{urlencode(options)}" if options else "", busy_seconds, durability)
    except ValueError as error:
        raise InvalidUrl(f"not a URL of a Redis store: {error}") from None
    engine = ShardedEngine if nodes.is_cluster else RedisEngine
    return engine(RedisDatabase(nodes, name, prefix, clock, random, durability))


def _single(parts: SplitResult, query: str, busy_seconds: float, durability: Durability) -> tuple[str, Nodes]:
    scheme = "unix" if parts.scheme == "redis+unix" else parts.scheme
    client = redis.Redis.from_url(
        f"{scheme}://{parts.netloc}{parts.path}{query}",
        socket_timeout=busy_seconds + durability.confirm_seconds,
        socket_connect_timeout=busy_seconds,
        retry=no_retry(),
        protocol=2,
    )
    where = parts.path if scheme == "unix" else f"{parts.hostname or 'localhost'}:{parts.port or PORT}"
    name = f"the Redis store at {where}"
    return name, SingleServer(client, name, busy_seconds)


def _through_sentinels(
    parts: SplitResult, options: dict[str, str], busy_seconds: float, durability: Durability
) -> tuple[str, Nodes]:
    """A client that asks the sentinels for the primary whenever it connects."""
    service, _, database = parts.path.strip("/").partition("/")
    login, _, hosts = parts.netloc.rpartition("@")
    if not service or not hosts or not (database or "0").isdigit():
        raise InvalidUrl(
            "a URL of Sentinel is redis+sentinel://host1:26379,host2:26379/NAME/0, with NAME of the primary"
        )
    there = {_SENTINEL_LOGIN[name]: options.pop(name) for name in _SENTINEL_LOGIN if name in options}
    if options:
        raise InvalidUrl(f"a URL of Sentinel has no parameter {shown(min(options))}")
    both: dict[str, Any] = {
        "socket_timeout": busy_seconds + durability.confirm_seconds,
        "socket_connect_timeout": busy_seconds,
        "retry": no_retry(),
        "ssl": parts.scheme.startswith("rediss"),
        "protocol": 2,
    }
    username, _, password = login.partition(":")
    named = [urlsplit(f"//{host}") for host in hosts.split(",")]
    sentinels = Sentinel(  # type: ignore[no-untyped-call]  # the library has no types here
        [(one.hostname or "localhost", one.port or SENTINEL_PORT) for one in named],
        sentinel_kwargs={**both, **there},
        db=int(database or "0"),
        username=unquote(username) or None,
        password=unquote(password) or None,
        **both,
    )
    name = f"the Redis store at {service} of the sentinels {hosts}"
    return name, SingleServer(sentinels.master_for(service), name, busy_seconds)  # type: ignore[no-untyped-call]  # the library has no types here


def _cluster(parts: SplitResult, query: str, busy_seconds: float, durability: Durability) -> tuple[str, Nodes]:
    """Any of the hosts names the others."""
    if parts.path not in ("", "/", "/0"):
        raise InvalidUrl(f"a cluster has database 0 only, not {shown(parts.path)}: redis+cluster://host1,host2/")
    login, at, hosts = parts.netloc.rpartition("@")
    named = [urlsplit(f"//{host}") for host in hosts.split(",")]
    addresses = [(one.hostname or "localhost", one.port or PORT) for one in named]
    scheme = parts.scheme.removesuffix(CLUSTER)

    def make() -> RedisCluster:
        return RedisCluster(
            url=f"{scheme}://{login}{at}{named[0].netloc}{query}",
            startup_nodes=[ClusterNode(*one) for one in addresses[1:]],  # type: ignore[no-untyped-call]  # it has none
            socket_timeout=busy_seconds + durability.confirm_seconds,
            socket_connect_timeout=busy_seconds,
            retry=no_retry(),
            # The nodes refuse the calls that they cannot run; the others go on.
            require_full_coverage=False,
            protocol=2,
        )

    name = f"the Redis cluster at {','.join(f'{host}:{port}' for host, port in addresses)}"
    return name, Cluster(make, name, busy_seconds)
