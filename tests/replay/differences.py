"""Where a replica may differ from its source: what the tools do not send, or send wrong. Exactly these.

docs/formats.md gives each its cause in the section of its tool.
"""

from __future__ import annotations

from replica import Differences

__all__ = ["CAPTURED", "expected"]

CAPTURED: dict[str, tuple[str, ...]] = {
    "debezium-strings": (
        "shop.all_types",
        "shop.customers",
        "crm.uuids",
        "crm.dec_key",
        "crm.legacy",
        "crm.coupons_copy",
        "crm.audit",
    ),
    "debezium-unwrap": (
        "shop.orders",
        "shop.customers",
        "shop.order-items",
        "crm.contacts",
        "crm.tags",
        "crm.event_log",
    ),
}
"""The tables of streams that do not hold all."""

# Rows that went without a row event: by ON DELETE CASCADE, and by TRUNCATE PARTITION.
_VANISHED: Differences = {("crm.child", "row too many"): 6, ("crm.parted", "row too many"): 4}

# Rows that were there as a generated column was added: a warning names it.
_NOT_COMPUTED: Differences = {("shop.orders", "total_g"): 502}

# A backtick in a column's name comes doubled.
_DOUBLED_BACKTICK: Differences = {
    ("shop.order.items", "q`tick"): 2,
    ("shop.order.items", "column too many: q``tick"): 1,
}

# Text of latin1 columns was read as UTF-8; doubles in JSON are spelled otherwise (1e100 as 1.0E100).
_CANAL: Differences = {("shop.all_types", "c_latin"): 78, ("shop.all_types", "c_json"): 6}

# Dates that no calendar has come as 1970-01-01 in NOT NULL columns; a snapshot's floats have six digits;
# 1e100 in JSON comes as 101 digits.
_DEBEZIUM: Differences = {
    ("crm.legacy", "d"): 4,
    ("shop.all_types", "c_float"): 3,
    ("shop.all_types", "c_json"): 6,
}

_EVERYWHERE: dict[str, Differences] = {
    "canal": {**_VANISHED, **_NOT_COMPUTED, **_DOUBLED_BACKTICK, **_CANAL},
    "canal-packets": {**_VANISHED, **_NOT_COMPUTED, **_DOUBLED_BACKTICK, **_CANAL},
    "debezium-schemas": {**_VANISHED, **_NOT_COMPUTED, **_DEBEZIUM},
    "debezium-plain": {**_VANISHED, **_NOT_COMPUTED, **_DEBEZIUM},
    "debezium-strings": {
        **_DEBEZIUM,
        # Without definitions of the tables: bytes as hexadecimal text, a set as text.
        ("crm.uuids", "row missing"): 5,
        ("crm.uuids", "row too many"): 5,
        ("shop.all_types", "c_bin"): 97,
        ("shop.all_types", "c_vbin"): 97,
        ("shop.all_types", "c_blob"): 97,
        ("shop.all_types", "c_set"): 59,
        # time.precision.mode=connect: milliseconds, and no time beyond a day.
        ("shop.all_types", "c_dt6"): 95,
        ("shop.all_types", "c_time"): 3,
        ("shop.all_types", "c_time6"): 97,
        # Renamed, which only DDL says.
        ("crm.coupons_copy", "table too many"): 1,
    },
    "debezium-unwrap": {
        # Without schemas and definitions: decimals as base64, dates and times as numbers, JSON as text.
        ("shop.orders", "total"): 512,
        ("shop.orders", "total_g"): 512,
        ("shop.orders", "placed_at"): 512,
        ("shop.orders", "meta"): 29,
        ("shop.customers", "balance"): 40,
        ("shop.customers", "born"): 20,
        # A table without a key: its times are numbers, and updates that do not say which row they were are
        # rejected.
        ("crm.event_log", "row missing"): 31,
        ("crm.event_log", "row too many"): 31,
        # Without DDL: what ALTER TABLE wrote into rows that were there, its new key, columns that went.
        ("shop.order-items", "row missing"): 237,
        ("shop.order-items", "row too many"): 237,
        ("crm.contacts", "age"): 14,
        ("crm.contacts", "rating"): 23,
        ("crm.contacts", "column too many: extra"): 1,
        ("crm.contacts", "column too many: flag"): 1,
        ("crm.contacts", "column too many: score"): 1,
        ("crm.contacts", "column too many: first_col"): 1,
    },
    "maxwell": {
        **_VANISHED,
        **_NOT_COMPUTED,
        **_DOUBLED_BACKTICK,
        # Wrong beyond 32 bits; cut to a time of day; JSON's null as NULL, and 1e100 as 101 digits.
        ("shop.all_types", "c_bit64"): 51,
        ("shop.all_types", "c_time"): 3,
        ("shop.all_types", "c_time6"): 3,
        ("shop.all_types", "c_json"): 15,
        # TRUNCATE is in no record.
        ("shop.coupons_moved", "row too many"): 2,
    },
    # Made of what Canal captured, which had lost it before.
    "dts": {**_VANISHED, **_NOT_COMPUTED, **_CANAL},
}

# Zeros at a decimal's end are not sent, and SQLite, which has no decimals, keeps the digits as they come.
_ZEROS_OF_DTS: Differences = {
    ("crm.contacts", "rating"): 6,
    ("crm.dec_key", "row missing"): 1,
    ("crm.dec_key", "row too many"): 1,
    ("crm.uuids", "d"): 5,
    ("shop.all_types", "c_dec"): 13,
    ("shop.all_types", "c_dec2"): 9,
    ("shop.customers", "balance"): 2,
    ("shop.order-items", "price"): 21,
    ("shop.orders", "total"): 61,
    ("shop.orders", "total_g"): 507,
}

_OF_TARGETS: dict[tuple[str, str], Differences] = {
    ("dts", "sqlite"): _ZEROS_OF_DTS,
}


def expected(stream: str, target: str) -> Differences:
    """Those of a stream in one of postgresql, mariadb, sqlite and delta."""
    return {**_EVERYWHERE[stream], **_OF_TARGETS.get((stream, target), {})}
