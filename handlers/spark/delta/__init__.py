"""Segments brought into Delta tables: what each mode makes of them (`modes`), each exactly once
(`commits`), and tables whose columns follow the source's."""

from __future__ import annotations

from handlers.spark.delta.modes.bringing import Bringing
from handlers.spark.delta.modes.choice import Applier, applier_for

__all__ = ["Applier", "Bringing", "applier_for"]
