"""Messages in Redis or Valkey: every verb is a function of the library `penstock` on the server."""

from penstock.engines.redis.engine import RedisEngine
from penstock.engines.redis.library import source as schema_script
from penstock.engines.redis.opening import open_redis

__all__ = ["RedisEngine", "open_redis", "schema_script"]
