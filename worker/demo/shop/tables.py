"""The shop's tables."""

from __future__ import annotations

from worker.demo.shop.canal_text import Column
from worker.demo.shop.source import SourceTable

DATABASE = "shop"

TIER = Column("tier", "enum('silver','gold','platinum')")
"""The column that an ALTER TABLE adds to `customers` in the middle of the run."""
PARCELS = Column("parcels", "smallint unsigned")
"""The type that another ALTER TABLE gives to this column of `shipments`. Before, it is a tinyint."""

_TABLES = {
    "customers": (
        ("id",),
        "id int unsigned, email varchar(120), name varchar(80), born date, "
        "newsletter set('mail','sms','post'), vip tinyint(1), balance decimal(12,2), "
        "updated_at timestamp(3)",
    ),
    "addresses": (
        ("id",),
        "id int unsigned, customer_id int unsigned, kind enum('billing','shipping'), "
        "street varchar(120), city varchar(60), postcode char(8)",
    ),
    "products": (
        ("id",),
        "id int unsigned, sku varchar(16), title varchar(120), price decimal(10,2), "
        "weight_g smallint unsigned, rating double, since year, attributes json, picture binary(8)",
    ),
    "stock": (
        ("warehouse", "product_id"),
        "warehouse tinyint unsigned, product_id int unsigned, quantity int, reserved int, "
        "counted_at datetime",
    ),
    "orders": (
        ("id",),
        "id bigint unsigned, customer_id int unsigned, "
        "status enum('new','paid','shipped','delivered','cancelled'), total decimal(12,2), "
        "note varchar(200), placed_at datetime(6)",
    ),
    "order_items": (
        ("order_id", "line"),
        "order_id bigint unsigned, line smallint unsigned, product_id int unsigned, "
        "quantity smallint unsigned, unit_price decimal(10,2), discount decimal(5,4)",
    ),
    "payments": (
        ("id",),
        "id bigint, order_id bigint unsigned, method enum('card','transfer','invoice','voucher'), "
        "state enum('open','settled','refunded'), amount decimal(12,2), settled_at timestamp(6)",
    ),
    "shipments": (
        ("tracking",),
        "tracking varchar(20), order_id bigint unsigned, carrier enum('ferry','rail','road'), "
        "parcels tinyint unsigned, handed_over time, shipped_at datetime, delivered_at datetime",
    ),
    "promotions": (("code",), "code varchar(20), percent decimal(5,2), starts date, ends date"),
    "audit_log": ((), "at datetime(3), actor varchar(40), action varchar(40), detail text"),
}
"""Table -> its primary key, and its columns with types, as in CREATE TABLE."""


def shop_tables() -> list[SourceTable]:
    return [
        SourceTable(name, key, [Column(*column.split(" ", 1)) for column in columns.split(", ")])
        for name, (key, columns) in _TABLES.items()
    ]
