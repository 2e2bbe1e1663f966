"""Handlers that write to Spark tables."""

from handlers.spark.handler import SparkHandler
from handlers.spark.options import ChangelogOptions, SparkSection

__all__ = ["ChangelogOptions", "SparkHandler", "SparkSection"]
