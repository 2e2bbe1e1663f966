"""The formats, by their names in the configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.formats.interface import Format

if TYPE_CHECKING:
    from worker.formats.debezium.settings import DebeziumSettings
    from worker.formats.own_json.layout import JsonLayout
    from worker.formats.schema_registry.schemas import Schemas


def names() -> tuple[str, ...]:
    """Names of the available formats, in the order of the documentation."""
    return ("canal", "debezium", "maxwell", "dts", "json")


def get(
    name: str,
    json_layout: JsonLayout | None = None,
    debezium: DebeziumSettings | None = None,
    schemas: Schemas | None = None,
) -> Format:
    """Make a reader of this format. `json_layout` is the layout of records of the format json. `debezium` has
    the settings that Debezium's records do not contain; `schemas` are the schemas that they name by id.

    Raises KeyError with the known names for another name, ValueError for json without its layout."""
    # Import only the format in use: all formats together are a tenth of a worker's imports.
    if name == "canal":
        from worker.formats.canal.format import Canal  # noqa: PLC0415

        return Canal()
    if name == "debezium" and schemas is not None:
        from worker.formats.schema_registry.headers import debezium_with  # noqa: PLC0415

        return debezium_with(schemas, debezium)
    if name == "debezium":
        from worker.formats.debezium.format import Debezium  # noqa: PLC0415

        return Debezium(debezium)
    if name == "maxwell":
        from worker.formats.maxwell.format import Maxwell  # noqa: PLC0415

        return Maxwell()
    if name == "dts":
        from worker.formats.dts.format import DTS  # noqa: PLC0415

        return DTS()
    if name == "json":
        if json_layout is None:
            raise ValueError("the format json needs its layout, the section json")
        from worker.formats.own_json.format import Json  # noqa: PLC0415

        return Json(json_layout)
    raise KeyError(f"unknown format {name!r}; allowed: {', '.join(names())}")
