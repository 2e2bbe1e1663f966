"""Redis for tests."""

from __future__ import annotations

from typing import ClassVar

import redis
from servers.server_process import HOST, PASSWORD, ServerProcess

__all__ = ["RedisNode"]


class RedisNode(ServerProcess):
    """A Redis server with a password. What was written stays over restarts and kills (append-only file)."""

    package: ClassVar[str] = "redis-server"

    @property
    def url(self) -> str:
        """Of database 0; see `new_database`."""
        return self._url(0)

    def new_database(self, name: str) -> str:
        """A database of its own for each `name`, emptied; its URL. At most 63 names."""
        number = self._numbers.setdefault(name, len(self._numbers) + 1)
        with redis.Redis.from_url(self._url(number)) as client:
            client.flushdb()
        return self._url(number)

    def __init__(self) -> None:
        super().__init__()
        self._numbers: dict[str, int] = {}

    def command(self) -> list[str]:
        settings = {
            "bind": HOST,
            "port": str(self.port),
            "requirepass": PASSWORD,
            "databases": "64",
            "save": "",
            "appendonly": "yes",
            "appendfsync": "no",  # a kill of the process loses nothing; a power cut is not tested
            "dir": str(self.directory),
        }
        lines = [f'{name} "{value}"\n' for name, value in settings.items()]
        return [self.program("redis-server"), str(self.write("redis.conf", "".join(lines)))]

    def close(self) -> None:
        self.kill()  # asked to end, it would wait for replicas that are away
        super().close()

    def ping(self) -> bool:
        with redis.Redis.from_url(self.url, socket_timeout=2) as client:
            return bool(client.ping())

    def _url(self, database: int) -> str:
        return f"redis://:{PASSWORD}@{HOST}:{self.port}/{database}"
