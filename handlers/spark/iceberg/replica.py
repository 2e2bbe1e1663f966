"""Replicas with a primary key: the last change of each key, by copy-on-write."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from handlers.spark.delta.arrow_rows import newest_of
from handlers.spark.delta.commits.commit_notes import CommitNote
from handlers.spark.iceberg.columns import arrow_schema, fitted_to
from handlers.spark.iceberg.commits import TableCommit
from handlers.spark.iceberg.matching import among, key_tuples, matched, names_in, picked
from handlers.spark.rows.shape import Shape


def bring(commit: TableCommit, changes: pa.Table, shape: Shape, note: CommitNote, *, prefix: str) -> None:
    """Write the changes into the commit. Files that have one of the keys are written anew. Columns that only
    the table has keep their values. Raises ValueError for a null in a key, and what PyIceberg raises."""
    newest = newest_of(changes, shape.key)
    if newest is None:
        raise ValueError(f"a column of the key ({', '.join(shape.key)}) is null")
    schema = arrow_schema(commit.schema)
    own = names_in(schema, shape.key)
    fitted = fitted_to(newest, schema)
    keys = fitted.select(list(own))
    key_schema = commit.schema.select(*own)
    touched = [
        file
        for file in commit.files(among(keys))
        if pc.any(matched(commit.rows(file, key_schema).cast(keys.schema), keys)).as_py()
    ]
    is_kept = pc.not_equal(newest.column(f"{prefix}op"), "delete")
    absent = newest.filter(is_kept).column(f"{prefix}absent").to_pylist()
    others = {name.casefold() for name in schema.names} - {name.casefold() for name in shape.schema.names}
    added = fitted.filter(is_kept)

    def rows() -> Iterator[pa.Table]:
        found = []
        for file in touched:
            there = commit.rows(file, commit.schema).cast(schema)
            is_changed = matched(there, keys)
            yield there.filter(pc.invert(is_changed))
            if others or any(absent):
                found.append(there.filter(is_changed))
        yield _filled(added, pa.concat_tables(found), list(own), absent, others) if found else added

    commit.replace(touched, rows(), note)


def _filled(
    added: pa.Table,
    there: pa.Table,
    key: list[str],
    absent: list[list[str] | None],
    others: Collection[str],
) -> pa.Table:
    """Fill in columns that rows lack (`absent` names them), and those of others, from the table's rows."""
    places = {each: place for place, each in enumerate(key_tuples(there, key))}
    earlier = [places.get(each) for each in key_tuples(added, key)]
    lacking = [{name.casefold() for name in each or ()} | set(others) for each in absent]
    chosen = {
        name: [
            before if name.casefold() in lacks and before is not None else len(there) + number
            for number, (before, lacks) in enumerate(zip(earlier, lacking, strict=True))
        ]
        for name in added.column_names
    }
    return pa.table(picked(chosen, pa.concat_tables([there, added])), schema=added.schema)
