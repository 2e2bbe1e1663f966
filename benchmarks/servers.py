"""The tests' database servers, for benchmarks. tests/servers needs no pytest."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from servers.postgres_server import PostgresServer
from servers.server_process import ServerError

__all__ = ["PostgresServer", "ServerError"]
