"""The `redis` handler: a hash or a JSON text for each row."""

from handlers.redis.handler import RedisHandler

__all__ = ["RedisHandler"]
