"""The `redis` handler: stores each row as a hash or a JSON text."""

from handlers.redis.handler import RedisHandler

__all__ = ["RedisHandler"]
