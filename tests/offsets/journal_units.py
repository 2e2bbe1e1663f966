"""All units of a journal's folder."""

from __future__ import annotations

from pathlib import Path

from offsets.journal.files import SIZE, Unit, files_in, unpacked


def units_in(folder: Path) -> list[Unit]:
    """Of all groups, by number."""
    found = []
    for first, path in files_in(folder).items():
        data = path.read_bytes()
        for place in range(len(data) // SIZE):
            found.append(unpacked(data[place * SIZE :][:SIZE], first + place))
    return [unit for unit in found if unit is not None]
