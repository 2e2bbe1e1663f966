"""The `spark` handler: writes changes into Delta tables or plain Parquet, or calls your own function. A batch
goes into the segment log (`log`) at once, and is merged into its table later (`engine`, `delta`)."""

from handlers.spark.handler import SparkHandler
from handlers.spark.options import SparkOptions, SparkSection

__all__ = ["SparkHandler", "SparkOptions", "SparkSection"]
