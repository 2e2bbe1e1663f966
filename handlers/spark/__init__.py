"""The `spark` handler: changes into Delta tables or plain Parquet, or to a function of one's own. A batch
goes into the segment log (`log`) at once, and from there into its table (`engine`, `delta`)."""

from handlers.spark.handler import SparkHandler
from handlers.spark.options import SparkOptions
from handlers.spark.section import SparkSection

__all__ = ["SparkHandler", "SparkOptions", "SparkSection"]
