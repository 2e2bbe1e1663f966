"""What the tests of configurations say often."""

from __future__ import annotations

from collections.abc import Callable

from worker.configuration import Configuration

__all__ = ["KAFKA", "Faults", "Load"]

Load = Callable[..., Configuration]
Faults = Callable[..., list[str]]

KAFKA = """\
kafka:
  bootstrap_servers: localhost:9092
  group_id: shop
  topics: [cdc.shop]
"""
