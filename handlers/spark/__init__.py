"""Handlers that write to Spark tables."""

from handlers.spark.handler import SparkHandler
from handlers.spark.options import SparkOptions
from handlers.spark.section import SparkSection

__all__ = ["SparkHandler", "SparkOptions", "SparkSection"]
