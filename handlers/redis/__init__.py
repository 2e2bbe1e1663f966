"""The `redis` handler: a hash or a JSON text for each row, written with its table's mark in one
transaction."""

from handlers.redis.handler import RedisHandler

__all__ = ["RedisHandler"]
