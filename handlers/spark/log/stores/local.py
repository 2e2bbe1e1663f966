"""Segments in the worker's own file system, or in a mounted one."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import shutil
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from operator import attrgetter
from pathlib import Path

import pyarrow as pa

from handlers.failures import OF_THE_DISK
from handlers.spark.log.stores.interface import AlreadyThere, Entry, Files, FilesError, temporary_name

_OPENED = "/proc/self/fd"
_AT_FDCWD = -100
_RENAME_NOREPLACE = 1
# Errors of link(2) in file systems without hard links (CIFS, FUSE, exFAT).
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK}
_WHAT_TO_DO = {
    errno.ENOSPC: "free space there, or give the table another place",
    errno.EDQUOT: "raise the quota, or free space there",
    errno.EACCES: "let the worker's user write there",
    errno.EPERM: "let the worker's user write there",
    errno.EROFS: "mount it writable",
    errno.ENOTDIR: "a file has the name of a needed folder: move it away",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENAMETOOLONG: "give the table a shorter path",
}


class LocalFiles:
    """Paths are plain, or URIs of scheme `file`.

    A put writes a temporary file beside the target, makes it durable and links it to its name. Linking fails
    atomically if the name is taken, on NFS too."""

    _held: tuple[str, str] | None = None
    """A folder, and the path by which it is found wherever it is."""

    def holding(self, folder: str) -> LocalFiles:
        """Return files for which this folder stays the one that it is now. If another worker moves it, they
        follow it, and never find a folder that is made in its place. Raises FileNotFoundError."""
        if not Path(_OPENED).exists():
            return self
        with _explained(folder, "open"):
            descriptor = os.open(self.place(folder), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        held = copy(self)
        held._held = folder, f"{_OPENED}/{descriptor}"
        weakref.finalize(held, os.close, descriptor)
        return held

    @property
    def is_moved(self) -> bool:
        """Whether the held folder is no longer in its place."""
        if self._held is None:
            return False
        folder, opened = self._held
        try:
            return not plain_path(folder).samefile(opened)
        except FileNotFoundError:
            return True

    def place(self, path: str) -> Path:
        """Return where a file is for the system's own calls."""
        if self._held is not None and f"{path}/".startswith(f"{self._held[0]}/"):
            return Path(self._held[1] + path.removeprefix(self._held[0]))
        return plain_path(path)

    def prove(self, folder: str) -> None:
        """Does nothing: link(2) refuses a taken name, or does not exist."""

    def list(self, folder: str) -> Sequence[Entry]:
        return [*self.list_after(folder, "")]

    def list_after(self, folder: str, name: str) -> Iterator[Entry]:
        with _explained(folder, "list"), suppress(FileNotFoundError), os.scandir(self.place(folder)) as found:
            for one in sorted((one for one in found if one.name > name), key=attrgetter("name")):
                with suppress(FileNotFoundError):  # removed since
                    stat = one.stat()
                    is_folder = one.is_dir()
                    size = 0 if is_folder else stat.st_size
                    yield Entry(one.name, size, stat.st_mtime_ns // 1_000_000, is_folder)

    def read(self, path: str) -> bytes:
        with _explained(path, "read"):
            return self.place(path).read_bytes()

    @contextmanager
    def open(self, path: str) -> Iterator[pa.NativeFile]:
        with _explained(path, "read"):
            file = pa.OSFile(str(self.place(path)))
        with file:
            yield file

    def put(self, path: str, data: bytes | pa.Buffer) -> None:
        target = self.place(path)
        temporary = target.with_name(temporary_name())
        with _explained(path, "write"):
            try:
                try:
                    _write(temporary, data)
                except FileNotFoundError:
                    _make_folder(target.parent)
                    _write(temporary, data)
                _name_exclusively(temporary, target, path)
            finally:
                with suppress(FileNotFoundError):
                    temporary.unlink()
            _sync_folder(target.parent)

    def replace(self, path: str, data: bytes) -> None:
        target = self.place(path)
        temporary = target.with_name(temporary_name())
        with _explained(path, "write"):
            try:
                _write(temporary, data)
                _remove_checksum(target)
                temporary.replace(target)
            finally:
                temporary.unlink(missing_ok=True)

    def delete(self, path: str) -> None:
        target = self.place(path)
        with _explained(path, "remove"), suppress(FileNotFoundError):
            _remove_checksum(target)
            try:
                target.unlink()
            except IsADirectoryError:
                with suppress(OSError):  # it is not empty
                    target.rmdir()

    def retire(self, path: str) -> None:
        with _explained(path, "change the time of"), suppress(FileNotFoundError):
            os.utime(self.place(path), (0, 0))

    def delete_tree(self, folder: str) -> None:
        with _explained(folder, "remove"), suppress(FileNotFoundError):
            found = Path(os.path.realpath(target := self.place(folder)))
            try:
                shutil.rmtree(found)
            except OSError as error:
                if error.errno != errno.EBUSY or any(found.iterdir()):  # an empty disk of its own
                    raise
            if target.is_symlink():
                target.unlink()

    def rename(self, source: str, target: str) -> None:
        old, new = self.place(source), self.place(target)
        with _explained(f"{source} to {target}", "move"):
            if not old.exists():
                raise FileNotFoundError(errno.ENOENT, "the folder does not exist", source)
            if old.is_symlink() and not old.readlink().is_absolute():  # it names another place there
                raise OSError(errno.EXDEV, "it is a relative link")
            _make_folder(new.parent)
            try:
                _rename_folder(old, new)
            except FileExistsError:
                raise AlreadyThere(target) from None
            for parent in {old.parent, new.parent}:
                _sync_folder(parent)

    def are_apart(self, source: str, target: str) -> bool:
        """Whether a folder's files cannot move to that place, because it is on another disk."""
        with _explained(f"{source} to {target}", "move"), suppress(FileNotFoundError):
            new = next(one for one in (self.place(target), *self.place(target).parents) if one.exists())
            return new.stat().st_dev != self.place(source).stat().st_dev
        return False

    def move_into(self, folder: str, source: str, names: Sequence[str]) -> None:
        """Move these files and folders from one folder into another. Others may move them at the same time.
        Raises AlreadyThere."""
        if not names:
            return
        old, new = self.place(source), self.place(folder)
        with _explained(f"{source} into {folder}", "move"):
            _make_folder(new)
            for name in names:
                try:
                    _rename_folder(old / name, new / name)
                except FileNotFoundError:
                    pass
                except FileExistsError:
                    raise AlreadyThere(f"{folder}/{name}") from None
            for each in (new, old):
                _sync_folder(each)

    def exists(self, path: str) -> bool:
        with _explained(path, "find"):
            return self.place(path).exists()


def holding(files: Files, folder: str, *, make: bool = False) -> Files:
    """Return files for which a table's folder stays the same: see `LocalFiles.holding`. In other stores, a
    folder is no more than a part of names. `make`: create it first. Without it, a missing one is not held."""
    if not isinstance(files, LocalFiles):
        return files
    if make:
        with _explained(folder, "make"):
            _make_folder(files.place(folder))
    with suppress(FileNotFoundError):
        return files.holding(folder)
    return files


def is_moved(files: Files) -> bool:
    """Whether a held folder is no longer in its place."""
    return isinstance(files, LocalFiles) and files.is_moved


def plain_path(path: str) -> Path:
    """The path of a file URI. Like Hadoop, this decodes no percent signs."""
    found = re.match(r"file:(?://(?P<host>[^/]*))?(?P<path>/.*)", path)
    if found is None:
        return Path(path)
    if found["host"] not in (None, "", "localhost"):
        raise FilesError(f"{path} is on another host ({found['host']}): write file:///{found['path'][1:]}")
    return Path(found["path"])


def _remove_checksum(target: Path) -> None:
    """Remove the file by which Hadoop checks this one, if Spark has written it."""
    with suppress(OSError):  # its name may be too long, so that Spark wrote none
        target.with_name(f".{target.name}.crc").unlink()


def _write(path: Path, data: bytes | pa.Buffer) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _name_exclusively(temporary: Path, target: Path, path: str) -> None:
    try:
        try:
            os.link(temporary, target)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            _rename_exclusively(temporary, target)
    except FileExistsError:
        raise AlreadyThere(path) from None


def _rename_folder(source: Path, target: Path) -> None:
    try:
        _rename_exclusively(source, target)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS):
            raise
        # NFS cannot, so check first. One worker at a time follows a table's DDL.
        if target.exists():
            raise FileExistsError from None
        try:
            source.rename(target)
        except OSError as late:
            if late.errno != errno.ENOTEMPTY:
                raise
            raise FileExistsError from None


def _rename_exclusively(source: Path, target: Path) -> None:
    """Call renameat2(2). Raises FileExistsError if the target exists, even an empty folder."""
    libc = ctypes.CDLL(None, use_errno=True)
    old, new = os.fsencode(source), os.fsencode(target)
    if not hasattr(libc, "renameat2"):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), str(target))
    if libc.renameat2(_AT_FDCWD, old, _AT_FDCWD, new, _RENAME_NOREPLACE) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(target))


def _make_folder(folder: Path) -> None:
    """Create a folder and its parents durably: a file is lost if a power loss removes its folder."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for one in reversed(missing):
        _sync_folder(one.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some mounts cannot: their names are durable at once, or never
            raise
    finally:
        os.close(descriptor)


@contextmanager
def _explained(path: str, what: str) -> Iterator[None]:
    try:
        yield
    except (FilesError, AlreadyThere):
        raise
    except FileNotFoundError as error:
        if str(error.filename).startswith(_OPENED):
            error.filename = path
        raise
    except OSError as error:
        advice = _WHAT_TO_DO.get(error.errno or 0, "make sure that the worker can use that place")
        said = error.strerror or str(error)
        is_outage = error.errno in OF_THE_DISK
        told = FilesError(f"cannot {what} {path}: {said}; {advice}", is_outage=is_outage)
        told.errno = error.errno
        raise told from error
