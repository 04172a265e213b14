"""Messages in Redis or Valkey: every verb is a function of the library `penstock` on the server."""

from penstock.engines.redis.connect import open_redis
from penstock.engines.redis.engine import RedisEngine
from penstock.engines.redis.library import source as schema_script

__all__ = ["RedisEngine", "open_redis", "schema_script"]
