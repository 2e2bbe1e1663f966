"""What can be set for Spark: the configuration's `spark:` section and a Spark handler's own keys."""

from __future__ import annotations

import re
from string import Formatter
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator

__all__ = ["ChangelogOptions", "SparkSection"]

_MODES = ("changelog",)
_PATH_FIELDS = ("database", "table")

Memory = Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]*[kmgt]$")]
Coordinate = Annotated[str, StringConstraints(pattern=r"^[^:\s]+:[^:\s]+:[^:\s]+$")]


class SparkSection(BaseModel):
    """The `spark:` section: one Spark session serves all Spark handlers of a worker."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    master: str = Field("local[2]", min_length=1, description="Spark's master URL.")
    warehouse: str = Field(
        "lake",
        min_length=1,
        description="Where tables are kept: a URI, or a folder (relative to the configuration file's).",
    )
    driver_memory: Memory = Field("2g", description="The Java heap, as Spark writes sizes: 512m, 2g.")
    concurrency: int = Field(
        2, ge=1, le=64, description="How many batches may be written at once; the others wait in their lanes."
    )
    packages: list[Coordinate] = Field(
        [], description="More Maven coordinates (group:artifact:version), e.g. a storage connector."
    )
    conf: dict[str, str | int | float | bool] = Field(
        {}, description="Any other Spark property; wins over binlane's defaults."
    )

    @field_validator("conf")
    @classmethod
    def _only_spark_properties(cls, conf: dict[str, object]) -> dict[str, object]:
        for key in conf:
            if not key.startswith("spark."):
                raise ValueError(f"{key!r} is no Spark property: their names begin with 'spark.'")
        if "spark.master" in conf or "spark.driver.memory" in conf:
            raise ValueError("set master and driver_memory beside conf, not in it")
        return conf


class ChangelogOptions(BaseModel):
    """The keys of a `type: spark` entry."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mode: Literal["changelog"] = Field(description="changelog: every change is appended as one row.")
    path: str | None = Field(
        None,
        min_length=1,
        description="The Delta table's place; {database} and {table} are replaced. "
        "Default: {database}/{table} in the warehouse.",
    )
    prefix: str = Field(
        "_",
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        description="Begins the names of the columns that binlane adds (_op, _offset ...).",
    )

    @field_validator("mode", mode="before")
    @classmethod
    def _known_mode(cls, mode: object) -> object:
        if mode not in _MODES:
            raise ValueError(f"mode {mode!r} is not available in this version; allowed: {', '.join(_MODES)}")
        return mode

    @field_validator("path")
    @classmethod
    def _known_fields(cls, path: str | None) -> str | None:
        if path is None:
            return None
        try:
            fields = [field for _, field, _, _ in Formatter().parse(path) if field is not None]
        except ValueError as error:
            raise ValueError(f"{path!r} is no template: {error}") from None
        for field in fields:
            if field not in _PATH_FIELDS:
                raise ValueError(f"{{{field}}} is unknown in a path; allowed: {{database}}, {{table}}")
        if "table" not in fields:
            raise ValueError("a path needs {table}: each source table has a Delta table of its own")
        if re.search(r"[?*\[\]]", path):
            raise ValueError("a path must not hold ? * [ ]: Spark would read them as a pattern")
        return path
