"""Chooses how a mode's rows are written to an Iceberg table."""

from __future__ import annotations

import pyarrow as pa

from handlers.spark.delta.commits.commit_notes import CommitNote
from handlers.spark.iceberg import history, keyless, replica
from handlers.spark.iceberg.columns import arrow_schema, fitted_to
from handlers.spark.iceberg.commits import TableCommit
from handlers.spark.rows.shape import Mode, Shape


def bring(
    commit: TableCommit, changes: pa.Table, shape: Shape, note: CommitNote, *, mode: Mode, prefix: str
) -> None:
    """Write rows of segments (see `log_schema`) into the commit. Raises what PyIceberg raises."""
    if mode == "changelog":
        commit.replace([], [fitted_to(changes, arrow_schema(commit.schema))], note)
    elif mode == "history":
        history.bring(commit, changes, shape, note, prefix=prefix)
    elif shape.key:
        replica.bring(commit, changes, shape, note, prefix=prefix)
    else:
        keyless.bring(commit, changes, shape, note, prefix=prefix)
