"""What can be set for the `files` handler."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from handlers.options.shapes import Shaped
from handlers.options.values import PositiveDuration, PositiveSize, duration, size

_OF_LINES = ("rotate_bytes", "rotate_every", "compress")
_OF_PARQUET = ("prefix", "topic_again")
_STORES = ("s3", "s3a", "gs", "abfss")


class FilesOptions(BaseModel):
    """The keys of a `type: files` entry."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    directory: str = Field(
        min_length=1,
        description="Where the files go, relative to the configuration file's folder. With format: parquet "
        "also a place in an object store: s3://bucket/path, gs://..., abfss://...",
    )
    format: Literal["jsonl", "parquet"] = Field(
        "jsonl", description="jsonl: lines that are appended. parquet: a file for each batch, exactly once."
    )
    rotate_bytes: PositiveSize = size("64MiB", "A file that has this size on disk is finished. Of jsonl.")
    rotate_every: PositiveDuration = duration(
        "10m", "A file of this age is finished, also when its table is idle. Of jsonl."
    )
    compress: Literal["none", "gzip"] = Field(
        "none", description="gzip: one member for each batch. Of jsonl; Parquet has zstd."
    )
    prefix: Annotated[str, Shaped(r"[A-Za-z_][A-Za-z0-9_]*", "a letter or _, then letters, digits and _")] = (
        Field("_", description="Before the names of the columns that binlane adds. Of parquet.")
    )
    topic_again: dict[str, list[str]] = Field(
        {},
        description="Id of a topic that is live again, after a fail-over to another cluster and back -> the "
        "ids that it follows. Of parquet.",
    )

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        of_others = _OF_PARQUET if self.format == "jsonl" else _OF_LINES
        for key in of_others:
            if key in self.model_fields_set:
                raise ValueError(f"{key} is not for format: {self.format}; leave it out")
        scheme, is_uri, _ = self.directory.partition("://")
        if is_uri and self.format == "jsonl":
            raise ValueError(
                "directory: lines are appended to files in a folder; an object store needs format: parquet"
            )
        if is_uri and scheme not in _STORES:
            stores = ", ".join(f"{store}://" for store in _STORES)
            raise ValueError(f"directory: {scheme}:// is no store; allowed: a folder, {stores}")
        return self
