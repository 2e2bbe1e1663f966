"""Reading the map of finished offsets that a killed worker left."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import structlog

from offsets.finished.layout import Torn, WindowRecord, boot_id, finished_ranges, records
from offsets.finished.segment import is_locked, segments_of, unfinished_files, writer_text
from offsets.types import Mark, OffsetRange, joined

_log = structlog.get_logger(__name__)

_NAME = re.compile(r"([0-9a-f]{16}):([0-9]{1,18}):([0-9]{1,18})")


class _Name(NamedTuple):
    """A window's name in a checkpoint."""

    text: str
    window: int
    first: int
    """The first segment that is needed."""


@dataclass(frozen=True, slots=True)
class Found:
    """The content of a window when its worker ended."""

    ranges: tuple[OffsetRange, ...]
    """Finished offsets, ascending and separate. They lie beyond the checkpoint, or overlap it."""
    marks: frozenset[Mark]
    """Commits that were sent for it. No other worker's commit equals one of them."""


def read(directory: Path, names: Iterable[str], *, remove: bool = False) -> dict[str, Found]:
    """Read the windows with these names, if their worker is dead.

    Omits a window if its worker is alive or its map cannot be used: cut off, damaged, or given up. Also if
    the machine restarted since, because a power loss may leave some pages older than others. Logs one line
    for each unusable map. `remove`: also removes its files, so nobody uses them later."""
    found: dict[str, Found] = {}
    wanted: dict[int, list[_Name]] = {}
    for name in names:
        parts = _NAME.fullmatch(name)
        if parts is not None:
            wanted.setdefault(int(parts[1], 16), []).append(_Name(name, int(parts[2]), int(parts[3])))
    for writer, its in wanted.items():
        files: dict[int, Path] = {}
        try:
            files = segments_of(directory).get(writer, {})
            if any(map(is_locked, files.values())):
                _log.debug("finished_map_in_use", writer=writer_text(writer))
            else:
                found |= _named(its, writer, files)
        except (Torn, OSError) as problem:
            _log.warning(
                "finished_map_not_used",
                directory=str(directory),
                writer=writer_text(writer),
                reason=str(problem),
                hint="the worker starts at the last checkpoint: records finished since then are repeated",
            )
            if remove:
                # The last file marks all as given up, and a gap before it is detected.
                _remove(files[number] for number in sorted(files))
    return found


def remove_unnamed(directory: Path, group: str, names: Iterable[str]) -> None:
    """Remove the group's maps of dead workers, unless its checkpoints name one of their windows."""
    with contextlib.suppress(OSError):
        # files that workers were making when they were killed
        _remove(path for path in unfinished_files(directory, group) if not is_locked(path))
        needed = {name.split(":")[0] for name in names}
        for writer, files in segments_of(directory, group).items():
            if writer_text(writer) not in needed and not any(map(is_locked, files.values())):
                _remove(files.values())


def covered(offset: int, ahead: Iterable[OffsetRange], more: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Join everything below `offset` and all the ranges, ascending and separate. The first range is the one
    from below `offset`."""
    return joined([each] for each in sorted([OffsetRange(-1, offset), *ahead, *more]))


def _named(names: Iterable[_Name], writer: int, files: dict[int, Path]) -> dict[str, Found]:
    """Return the windows with these names, if they were not ended. Raises Torn, OSError."""
    if not files:
        raise Torn("its files are gone")
    windows = _windows(writer, files)
    found = {}
    for each in names:
        window = windows.get(each.window)
        if window is not None:
            if not set(range(each.first, max(files) + 1)) <= set(files):
                raise Torn("some of its files are gone")
            found[each.text] = window
    return found


def _windows(writer: int, files: dict[int, Path]) -> dict[int, Found]:
    """Return the windows that were not ended. Raises Torn, OSError."""
    boot = boot_id()
    if boot is None:
        raise Torn("this system does not report its boot")
    ranges: dict[int, list[OffsetRange]] = {}
    marks: dict[int, set[Mark]] = {}
    ended: set[int] = set()
    for number, path in sorted(files.items()):
        here: set[int] = set()
        for record in records(path.read_bytes(), writer, number, boot):
            if isinstance(record, WindowRecord):
                here.add(record.window)
                marks.setdefault(record.window, set()).update(record.marks)
                if record.ended:
                    ended.add(record.window)
            elif record.window not in here:
                raise Torn("a run belongs to no window")
            else:
                ranges.setdefault(record.window, []).extend(finished_ranges(*record[1:]))
    return {
        window: Found(tuple(covered(-1, (), ranges.get(window, ()))[1:]), frozenset(its))
        for window, its in marks.items()
        if window not in ended
    }


def _remove(files: Iterable[Path]) -> None:
    for path in files:
        with contextlib.suppress(OSError):
            path.unlink()
