"""Where a replica may differ from PostgreSQL: what Debezium's records do not tell, or tell wrong.

Exactly these; docs/formats.md gives each its cause.
"""

from __future__ import annotations

from replica import Differences

__all__ = ["expected"]

_LEFT_OUT = (
    *("c_box", "c_circle", "c_complex", "c_jsonpath", "c_line", "c_lseg", "c_path", "c_pg_lsn"),
    *("c_polygon", "c_regclass", "c_tsquery", "c_xid8"),
)

_EVERYWHERE: Differences = {
    # Types that the connector leaves out.
    **{("public.misc", f"column missing: {name}"): 1 for name in _LEFT_OUT},
    ("public.ranges", "column missing: c_int4multirange"): 1,
    # NULL instead of a value: names, arrays of enums, arrays of arrays, NaN and the infinities of numeric.
    ("public.texts", "c_name"): 16,
    ("public.arrays", "c_moods"): 4,
    ("public.arrays", "c_ints2"): 2,
    ("public.num_nan", "c_num"): 6,
    ("public.num_nan", "c_num122"): 5,
    # An array's times are cut to milliseconds.
    ("public.arrays", "c_times"): 4,
    # Generated columns are in the snapshot only.
    ("public.generated", "area"): 16,
    ("public.generated", "label"): 12,
    # No DDL: renamed and dropped tables.
    ("public.renamed_before", "table too many"): 1,
    ("public.renamed_after", "row missing"): 7,
    ("public.dropped", "table too many"): 1,
    # The snapshot reads a table with those that inherit from it.
    ("public.parent_inh", "row too many"): 12,
    # The log has nothing of an unlogged table.
    ("public.unlogged", "v"): 12,
    # Deletes and changes of keys that do not name their row are refused: REPLICA IDENTITY USING INDEX.
    ("public.ri_index", "row too many"): 3,
    ("public.toasted_index", "row too many"): 2,
    # The connector loses which time 294276-12-31 23:59:59.999999 is: such records are refused.
    ("public.times", "row missing"): 2,
    ("public.times", "c_ts"): 1,
    ("public.times", "c_tstz"): 1,
    # With such a delete a value that stayed as it was went, of a row that got another key.
    ("public.toasted_index", "t"): 1,
}

# The stream names each row's partition, the snapshot has the rows of all in the parent as well.
_BY_PARTITION: Differences = {
    ("crm.parted", "row missing"): 15,
    ("crm.parted", "row too many"): 5,
    ("crm.parted", "v"): 2,
}

# A row that gets another key without its large values is rejected. An update of it makes the row later.
_LOST: Differences = {
    **{("public.toasted", column): 1 for column in ("b", "h", "j", "t", "tnn", "tt")},
    ("public.toasted", "row missing"): 1,
}

# Without schemas nothing tells that a column was dropped, or renamed.
_KEPT: Differences = {
    ("public.evolving", "column too many: gone"): 1,
    ("public.evolving", "column too many: score"): 1,
}

# Without schemas the digits of a decimal whose scale changed cannot be read: it stays as it is sent.
_UNTYPED: Differences = {("public.evolving", "age"): 2, ("public.evolving", "rating"): 18}

# A row without its generated columns counts as whole, and replaces the one that has them.
_REPLACED: Differences = {("public.generated", "label"): 16}

_OF_STREAMS: dict[str, Differences] = {
    "postgres-schemas": {
        # publish.via.partition.root: the stream names the parent, the snapshot has the partitions, too.
        ("crm.parted", "row too many"): 7,
        ("crm.parted_2023", "row too many"): 4,
        ("crm.parted_2024", "row missing"): 8,
        ("crm.parted_2024", "v"): 1,
        ("crm.parted_2030", "table missing"): 1,
        ("crm.parted_other", "row missing"): 6,
        ("crm.parted_other", "row too many"): 1,
        ("crm.parted_other", "v"): 1,
        # What ALTER TABLE wrote into rows that were there: a default, two more digits.
        ("public.evolving", "age"): 2,
        ("public.evolving", "rating"): 9,
    },
    # Several partitions: the halves of a changed key may come in any order, and stay apart.
    "postgres-plain": {**_BY_PARTITION, **_UNTYPED, **_KEPT, **_LOST},
    "postgres-unwrap": {
        **_BY_PARTITION,
        **_UNTYPED,
        **_KEPT,
        # Without add.fields=schema the topic tells it, in which a space is an underscore.
        ("Sales-EU v2.Ord.ers", "table missing"): 1,
        ("Sales-EU v2.orders", "table missing"): 1,
        # The transform drops truncates.
        ("crm.parted_2023", "row too many"): 7,
        ("crm.trunc_a", "row too many"): 11,
        ("crm.trunc_b", "row too many"): 11,
        ("crm.trunc_one", "row too many"): 10,
        # Tables without a key: updates that do not say which row they were are rejected.
        ("public.no_key_full", "row missing"): 6,
        ("public.no_key_full", "row too many"): 8,
        ("public.toasted_nokey", "row missing"): 11,
        ("public.toasted_nokey", "row too many"): 12,
    },
}

_OF_TARGETS: dict[str, Differences] = {
    # It keeps no sign of zero.
    "sqlite": {("public.nums", "c_double"): 2, ("public.nums", "c_real"): 2},
    "postgresql": {},
    "delta": {
        # With debezium.null_beyond_calendar.
        **{("public.times", place): 0 for place in ("row missing", "c_ts", "c_tstz")},
        # A column without a type and without any value is not made.
        ("public.arrays", "c_moods"): 0,
        ("public.arrays", "column missing: c_moods"): 1,
        **_LOST,
    },
}
_OF_BOTH: dict[tuple[str, str], Differences] = {
    # A column that the schema has no more stays; an array without values has a type.
    ("postgres-schemas", "delta"): {
        **_KEPT,
        ("public.arrays", "c_moods"): 4,
        ("public.arrays", "column missing: c_moods"): 0,
    },
    **dict.fromkeys((("postgres-plain", "delta"), ("postgres-unwrap", "delta")), _REPLACED),
}


def expected(stream: str, target: str) -> Differences:
    """Those of one of POSTGRES_STREAMS in one of postgresql, sqlite and delta."""
    found = _EVERYWHERE | _OF_STREAMS[stream] | _OF_TARGETS[target] | _OF_BOTH.get((stream, target), {})
    return {place: rows for place, rows in found.items() if rows}
