"""What the tests of configurations say often."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from worker.configuration import Configuration

__all__ = ["ANY_TABLE", "KAFKA", "TABLES", "Faults", "Load", "complete"]

Load = Callable[..., Configuration]
Faults = Callable[..., list[str]]

KAFKA = """\
kafka:
  bootstrap_servers: localhost:9092
  group_id: shop
  topics: [cdc.shop]
"""

ANY_TABLE: list[Any] = [{"match": "*", "handlers": [{"type": "log"}]}]
TABLES = "tables: [{match: '*', handlers: [{type: log}]}]\n"


def complete(text: str, tables: str = TABLES) -> str:
    """A configuration that has tables; those given, in its last line, if it has none itself."""
    if re.search(r"^tables:", text, re.MULTILINE):
        return text
    return text + ("" if text.endswith("\n") else "\n") + tables
