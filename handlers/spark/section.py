"""The configuration's `spark:` section: one Spark session serves all Spark handlers of a worker."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from handlers.options.section import Options
from handlers.options.values import Shaped

Memory = Annotated[
    str,
    Shaped(
        r"^[1-9][0-9]*[kmgt]$",
        "a size as Java writes it, such as 512m or 2g",
        lambda text: text.replace(" ", "").lower().removesuffix("ib").removesuffix("b"),
    ),
]
Coordinate = Annotated[str, Shaped(r"^[^:\s]+:[^:\s]+:[^:\s]+$", "Maven coordinates, group:artifact:version")]
ConnectAddress = Annotated[
    str,
    Shaped(
        r"^sc://.+",
        "the address of a Spark Connect server, sc://host:port",
        lambda text: f"sc://{text.rpartition('://')[2]}",
    ),
]
_OF_THE_SERVER = ("master", "driver_memory", "packages", "ui", "start")


class SparkSection(Options):
    """Where Spark runs, and where its tables are."""

    master: str = Field(default="local[2]", min_length=1)
    """Spark's master URL: local[N], spark://host:port, yarn, k8s://... The driver runs in the worker's
    pod."""
    remote: ConnectAddress | None = None
    """The address of a Spark Connect server, sc://host:port. Spark runs there, without Java here. The server
    needs Delta's jars, and the worker must reach the warehouse, too."""
    warehouse: str = Field(default="lake", min_length=1)
    """The place of the tables: a URI, or a folder relative to the configuration file's."""
    driver_memory: Memory = "2g"
    """The Java heap, in Spark's form of sizes: 512m, 2g."""
    concurrency: int = Field(default=2, ge=1, le=64)
    """The number of tables that are merged at once."""
    single_writer: bool = False
    """Promises that only one worker at a time writes these tables. Needed for stores in which Delta has no
    safe commits for several writers (S3)."""
    views: bool = False
    """Whether Spark's catalog has a view of each Delta table with its waiting changes: `shop.orders`, or
    `shop.orders_history`. Other programs need the same catalog, such as a Hive metastore."""
    start: Literal["auto", "eager"] = "auto"
    """When Spark starts. `auto`: when a table first needs it. `eager`: at the worker's start."""
    ui: bool = True
    """Spark's web pages while it runs. `binlane status` shows where."""
    packages: list[Coordinate] = Field(default=[])
    """Additional Maven coordinates (group:artifact:version), such as a storage connector."""
    conf: dict[str, str | int | float | bool] = Field(default={})
    """Any other Spark property. Overrides binlane's defaults."""

    iceberg: dict[str, str | int | float | bool] = Field(default={})
    """The catalog of `format: iceberg`: PyIceberg's properties (type, uri, warehouse, credential, s3.endpoint
    ...), and the catalog's name (`name`). Without a type, PyIceberg's own configuration applies."""

    @field_validator("conf")
    @classmethod
    def _only_spark_properties(cls, conf: dict[str, object]) -> dict[str, object]:
        for key in conf:
            if not key.startswith("spark."):
                raise ValueError(f"{key!r} is not a Spark property: their names begin with 'spark.'")
        if "spark.master" in conf or "spark.driver.memory" in conf:
            raise ValueError("set master and driver_memory beside conf, not in it")
        return conf

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        given = sorted(self.model_fields_set.intersection(_OF_THE_SERVER))
        if self.remote is not None and given:
            raise ValueError(
                f"with remote, {', '.join(given)} cannot be set here: they belong to the Connect server"
            )
        return self
