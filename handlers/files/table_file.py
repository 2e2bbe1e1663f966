"""The files of one table: one open file, and finished ones.

The open file has a hidden name (`.NAME.part`), so loaders of the folder see only finished files. A finished
file is renamed in place and never changed again. A batch is one write. It is on disk when `write` returns;
if it fails, no part stays."""

from __future__ import annotations

import errno
import fcntl
import gzip
import os
import re
import tempfile
import zlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Lock

# Besides / and %: characters that readers of folders treat specially (globs, Hive's `column=value`, Hadoop's
# colon), and control characters. Other scripts stay: percent-encoded, a name of 64 characters would be too
# long for a file system.
_UNSAFE = frozenset('/%\\:*?"<>|[]{}=')
_READ_BYTES = 1 << 16
_NAME = "%Y%m%dT%H%M%S.%fZ"
_NAMED = re.compile(r"\.?(\d{8}T\d{6}\.\d{6}Z)")


def safe_name(name: str) -> str:
    """Return a folder name that is unique for each `name`. `urllib.parse.unquote` reverses it.

    >>> safe_name("orders"), safe_name("a/b"), safe_name("_tmp"), safe_name("订单")
    ('orders', 'a%2Fb', '%5Ftmp', '订单')
    """
    # Readers skip names that begin with `.` or `_`.
    return "".join(
        f"%{ord(character):02X}"
        if character in _UNSAFE or ord(character) in (*range(0x20), 0x7F) or (not place and character in "._")
        else character
        for place, character in enumerate(name)
    )


def check_writable(directory: Path) -> None:
    """Test that the directory, or its nearest existing parent, is writable. Raises OSError."""
    directory = directory.absolute()
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    with tempfile.TemporaryFile(dir=existing) as file:
        file.write(b"\n")
        file.flush()


class TableFile:
    """The open file of one table, and its successors.

    Batches come from one thread at a time, but another thread finishes an idle file."""

    def __init__(self, folder: Path, suffix: str) -> None:
        """`suffix`: .jsonl or .jsonl.gz; the latter contains one gzip member per batch."""
        self._folder = folder
        self._suffix = suffix
        self._lock = Lock()  # guards everything below
        self._descriptor: int | None = None
        self._part: Path | None = None
        self._end = 0
        self._opened = 0.0
        self._latest = datetime.min.replace(tzinfo=UTC)  # from its name

    def write(self, lines: bytes, now: float) -> int:
        """Append a batch of whole lines and sync it to disk. Return the file's new size.

        `now`: seconds since 1970; it names a new file. Raises OSError; the file is then unchanged."""
        data = gzip.compress(lines, mtime=0) if self._suffix.endswith(".gz") else lines
        with self._lock:
            descriptor = self._ready(now)
            try:
                _write_all(descriptor, data)
                os.fsync(descriptor)
            except BaseException:
                self._take_back(descriptor)
                raise
            self._end += len(data)
            return self._end

    def finish(self, *, opened_before: float | None = None) -> Path | None:
        """Close the file and rename it to its final name. None if there is no file of that age.

        Raises OSError."""
        with self._lock:
            if self._part is None or (opened_before is not None and self._opened > opened_before):
                return None
            part = self._part
            if self._reopened() is None:
                self._forget()
                return None
            final = None
            if self._end:
                final = part.rename(_final(part))
            else:
                part.unlink()
            self._forget()
            _sync_folder(self._folder)
            return final

    def release(self) -> bool:
        """Close the descriptor until the next batch. False if the file is in use."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None
            return True
        finally:
            self._lock.release()

    def _ready(self, now: float) -> int:
        descriptor = self._reopened() if self._part is not None else None
        if descriptor is None:
            self._forget()
            descriptor = self._create(now)
        return descriptor

    def _reopened(self) -> int | None:
        """Return the open file's descriptor; None if the file was removed or truncated from outside."""
        if self._part is None:
            return None
        if self._descriptor is not None:
            return self._descriptor if os.fstat(self._descriptor).st_nlink else None
        descriptor = _locked(self._part)
        if descriptor is None:
            return None
        if os.fstat(descriptor).st_size < self._end:
            os.close(descriptor)
            return None
        os.ftruncate(descriptor, self._end)
        self._descriptor = descriptor
        return descriptor

    def _create(self, now: float) -> int:
        folders = (self._folder, *self._folder.parents)
        for missing in reversed([folder for folder in folders if not folder.exists()]):
            missing.mkdir(exist_ok=True)
            _sync_folder(missing.parent)
        moment = datetime.fromtimestamp(now, UTC)
        # Names must sort in the order of writing, even if the clock was set back.
        if (latest := max(self._latest, _latest(self._folder))) >= moment:
            moment = latest + timedelta(microseconds=1)
        while True:
            self._latest = moment
            final = self._folder / f"{moment:{_NAME}}{self._suffix}"
            part = final.with_name(f".{final.name}.part")
            moment += timedelta(microseconds=1)
            descriptor = None if final.exists() else _locked(part, make=True)
            if descriptor is not None:
                self._part, self._descriptor, self._end, self._opened = part, descriptor, 0, now
                return descriptor

    def _take_back(self, descriptor: int) -> None:
        try:
            os.ftruncate(descriptor, self._end)
        except OSError:
            # `_reopened` truncates it at the same place.
            os.close(descriptor)
            self._descriptor = None

    def _forget(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._part, self._descriptor, self._end = None, None, 0


def recover(directory: Path) -> list[Path]:
    """Finish the files that a crashed worker left open below `directory`, and return their new names.

    An incomplete last line is removed. A file that another worker is writing stays. Raises OSError."""
    finished = []
    for part in sorted(directory.glob("*/*/.*.part")):
        descriptor = _locked(part)
        if descriptor is None:
            continue
        try:
            end = _whole_members(descriptor) if part.name.endswith(".gz.part") else _whole_lines(descriptor)
            if end:
                os.ftruncate(descriptor, end)
                os.fsync(descriptor)
                finished.append(part.rename(_final(part)))
            else:
                part.unlink()
            _sync_folder(part.parent)
        finally:
            os.close(descriptor)
    return finished


def _final(part: Path) -> Path:
    return part.with_name(part.name.removeprefix(".").removesuffix(".part"))


def _latest(folder: Path) -> datetime:
    """Return the latest time in the names of the folder's files. Other files are ignored."""
    times = [found[1] for path in folder.iterdir() if (found := _NAMED.match(path.name))]
    try:
        return datetime.strptime(max(times, default=""), _NAME).replace(tzinfo=UTC)
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)


def _locked(part: Path, *, make: bool = False) -> int | None:
    """Open and lock the file, and return its descriptor. `make`: create it, so that it survives a crash. None
    if it is gone (`make`: its name is taken), or another worker has it."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC
    try:
        descriptor = os.open(part, flags | os.O_CREAT | os.O_EXCL if make else flags, 0o666)
    except OSError as error:
        if error.errno == (errno.EEXIST if make else errno.ENOENT):
            return None
        raise
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if make:
            _sync_folder(part.parent)
        # The previous owner of the lock may have finished the file, or a worker that recovers files after a
        # crash may have found the new one before it was locked.
        if os.path.samestat(os.fstat(descriptor), part.stat()):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(descriptor)
        if make:
            part.unlink(missing_ok=True)
        raise
    os.close(descriptor)
    return None


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:  # usually one write; more if the system wrote only a part
        view = view[os.write(descriptor, view) :]


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _whole_lines(descriptor: int) -> int:
    """Return the position after the last complete line."""
    end = os.fstat(descriptor).st_size
    while end:
        start = max(0, end - _READ_BYTES)
        line_break = os.pread(descriptor, end - start, start).rfind(b"\n")
        if line_break >= 0:
            return start + line_break + 1
        end = start
    return 0


def _whole_members(descriptor: int) -> int:
    """Return the position after the last complete gzip member."""
    whole = position = 0
    member = zlib.decompressobj(wbits=31)
    while chunk := os.pread(descriptor, _READ_BYTES, position):
        position += len(chunk)
        while chunk:
            try:
                member.decompress(chunk)
            except zlib.error:
                return whole
            chunk = member.unused_data
            if member.eof:
                whole = position - len(chunk)
                member = zlib.decompressobj(wbits=31)
    return whole
