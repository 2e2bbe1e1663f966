"""Segments brought into Delta tables: one commit each time, with the number of the last segment in it."""

from __future__ import annotations

from handlers.spark.delta.applier import Applier, applier_for

__all__ = ["Applier", "applier_for"]
