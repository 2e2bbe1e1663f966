"""How long the name of a table may be: what is longer is no table's, and nothing keeps it."""

from __future__ import annotations

from worker.formats.decoding import explained
from worker.formats.interface import Apart, Format, Record, Route, Skip, UndecodableRecord

LONGEST_NAME = 512
"""Bytes in UTF-8, of a database and of a table each. Databases allow 64 characters or 63 bytes, few 255."""

_LONGEST_SHOWN = 256
_BYTES_OF_CHARACTER = 4


def fits(name: str) -> bool:
    """Whether a database or a table may be called so.

    >>> fits("orders"), fits("o" * 513), fits("\N{LATIN SMALL LETTER O WITH STROKE}" * 257)
    (True, False, False)
    """
    if len(name) * _BYTES_OF_CHARACTER <= LONGEST_NAME:
        return True
    return len(name) <= LONGEST_NAME and len(name.encode("utf-8", "surrogatepass")) <= LONGEST_NAME


def shown(name: str) -> str:
    """As it stands in logs and errors: what is longer than 256 characters is cut.

    >>> shown("shop.orders"), len(shown("o" * 10**6))
    ('shop.orders', 259)
    """
    # The mark tells who redacts it that it is cut, perhaps within a secret.
    return name if len(name) <= _LONGEST_SHOWN else f"{name[:_LONGEST_SHOWN]}..."


def routed(format_: Format, record: Record) -> Route | Skip | Apart:
    """What the format makes of the record, its names of tables looked at.

    Raises UndecodableRecord and nothing else: also for a name that is too long to be one."""
    found = explained(format_, record)
    if isinstance(found, Skip):
        return found
    for route in (own for own, _ in found.parts) if isinstance(found, Apart) else (found,):
        for what, name in (("database", route.database), ("table", route.table)):
            if not fits(name):
                raise UndecodableRecord(
                    f"the name of its {what} is longer than {LONGEST_NAME} bytes: {shown(name)!r}"
                )
    return found
