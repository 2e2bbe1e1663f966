"""Segments in object stores, without Java: for workers whose Spark is behind Spark Connect."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import obstore
import pyarrow as pa
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import ObjectStore, from_url

from handlers.spark.log.stores.interface import AlreadyThere, Entry, FilesError, Proof, RandomAccess

_SCHEMES = {"s3n": "s3a", "gcs": "gs"}
"""Other names that Spark accepts."""
_COPIES_AT_ONCE = 16
_CONFLICTS = 5
_TRIES_SECONDS = 20
"""Seconds for which a store that does not answer is retried. Then its table waits, and reports it."""
# Texts for a store that is away, or asks to wait: no answer at all, or one of these.
_OUTAGE = re.compile(
    r"error sending request|status code: (408|429|5\d\d)|timed out|connect error|dns error"
    r"|connection (closed|reset)",
    re.IGNORECASE,
)


# Secrets of the environment: signatures in URLs of Azure and S3, and a password in an endpoint's URL. Those
# of the configuration are removed from every log.
_SECRET = re.compile(
    r"((?:\bsig|X-Amz-(?:Signature|Credential|Security-Token))=)[^&\s)\"']+|(://[^/\s:@]*:)[^/\s@]+(?=@)",
    re.IGNORECASE,
)


class ObjectFiles:
    """One bucket of S3 (`s3a:`, `s3:`) or Google Cloud Storage (`gs:`), or one container of Azure (`abfss:`).
    Credentials, region and endpoint come from the worker's environment: `AWS_ACCESS_KEY_ID`,
    `AWS_ENDPOINT_URL`, `GOOGLE_APPLICATION_CREDENTIALS`, `AZURE_STORAGE_ACCOUNT_KEY` ...
    (https://developmentseed.org/obstore/latest/authentication/).

    A put is one request on condition that the name is free. Of several, the store lets one win, and the file
    appears whole. Folders do not exist, only names with a common prefix. So an empty folder does not
    exist."""

    def __init__(self, uri: str) -> None:
        """`uri`: any place in the store. Raises FilesError for an unknown or incomplete one."""
        scheme, _, rest = uri.partition("://")
        bucket = rest.partition("/")[0]
        self._prefix = f"{scheme}://{bucket}"
        try:
            # Only the bucket: percent signs in paths are not decoded, as in Spark.
            self._store: ObjectStore = from_url(
                f"{_SCHEMES.get(scheme, scheme)}://{bucket}",
                client_options={"allow_http": True, "connect_timeout": "10s", "timeout": "5min"},
                retry_config={
                    "max_retries": 10,
                    "retry_timeout": timedelta(seconds=_TRIES_SECONDS),
                    "backoff": {"max_backoff": timedelta(seconds=2)},
                },
            )
        except (BaseError, ValueError) as error:
            raise FilesError(
                f"cannot reach {uri}: {_first_line(error)}; such a place (with Spark Connect also the "
                "warehouse) must be a folder that is mounted here, or have the scheme s3a, gs or abfss, with "
                "credentials in the worker's environment"
            ) from None
        self._proof = Proof(self._put, self.read, self.delete)

    def prove(self, folder: str) -> None:
        self._proof.once(folder)

    def list(self, folder: str) -> Sequence[Entry]:
        key = self._key(folder)
        with _explained(folder, "list"):
            found = obstore.list_with_delimiter(self._store, key or None)
        folders = [Entry(path.rpartition("/")[2], 0, 0, True) for path in found["common_prefixes"]]
        # The folder's own name is Hadoop's mark of an empty one.
        return folders + [_entry(one) for one in found["objects"] if one["path"] != key]

    def list_after(self, folder: str, name: str) -> Iterator[Entry]:
        key = self._key(folder)
        with _explained(folder, "list"):
            for found in obstore.list(self._store, key, offset=f"{key}/{name}"):
                yield from (_entry(one) for one in found if one["path"].rpartition("/")[0] == key)

    def read(self, path: str) -> bytes:
        with _explained(path, "read"):
            return bytes(obstore.get(self._store, self._key(path)).bytes())

    @contextmanager
    def open(self, path: str) -> Iterator[pa.NativeFile]:
        key = self._key(path)
        with _explained(path, "read"):
            size = obstore.head(self._store, key)["size"]

        def read_at(start: int, length: int) -> bytes:
            with _explained(path, "read"):
                return bytes(obstore.get_range(self._store, key, start=start, length=length))

        with pa.PythonFile(RandomAccess(size, read_at), mode="r") as file:
            yield file

    def put(self, path: str, data: bytes | pa.Buffer) -> None:
        self._proof.once(path.rpartition("/")[0])
        self._put(path, data)

    def replace(self, path: str, data: bytes) -> None:
        with _explained(path, "write"):
            obstore.put(self._store, self._key(path), data, use_multipart=False)

    def delete(self, path: str) -> None:
        with _explained(path, "remove"), suppress(FileNotFoundError):
            obstore.delete(self._store, self._key(path))

    def retire(self, path: str) -> None:
        """Does nothing: object stores have no time stamps to set."""

    def delete_tree(self, folder: str) -> None:
        with _explained(folder, "remove"), suppress(FileNotFoundError):
            for keys in self._keys_below(folder):
                obstore.delete(self._store, [*keys])

    def rename(self, source: str, target: str) -> None:
        """Copies all files, then removes the old ones. After a crash in between, both places contain files.
        Then remove the target by hand before you try again."""
        if not self.exists(source):
            raise FileNotFoundError(f"{source} does not exist")
        if self.exists(target):
            raise AlreadyThere(target)
        old, new = self._key(source), self._key(target)
        with _explained(target, "write"), ThreadPoolExecutor(_COPIES_AT_ONCE) as pool:
            for keys in self._keys_below(source):
                copies = [
                    pool.submit(obstore.copy, self._store, key, f"{new}{key.removeprefix(old)}")
                    for key in keys
                ]
                for copy in copies:
                    copy.result()
        self.delete_tree(source)

    def exists(self, path: str) -> bool:
        with _explained(path, "find"):
            try:
                obstore.head(self._store, self._key(path))
            except FileNotFoundError:
                return any(self._keys_below(path))
            return True

    def _put(self, path: str, data: bytes | pa.Buffer) -> None:
        content = memoryview(data).cast("B")
        for _ in range(_CONFLICTS):
            with _explained(path, "write"):
                try:
                    obstore.put(self._store, self._key(path), content, mode="create", use_multipart=False)
                except AlreadyExistsError:
                    if self.exists(path):
                        raise AlreadyThere(path) from None
                    # S3 answers 409 if a put meets another put or a removal, and may have kept neither.
                    continue
            return
        raise FilesError(
            f"cannot write {path}: the store keeps reporting it as busy, and then has no such file",
            is_outage=True,
        )

    def _keys_below(self, folder: str) -> Iterator[Sequence[str]]:
        for found in obstore.list(self._store, self._key(folder) or None):
            yield [one["path"] for one in found]

    def _key(self, path: str) -> str:
        return path.removeprefix(self._prefix).strip("/")


def _entry(one: Any) -> Entry:
    modified_ms = int(one["last_modified"].timestamp() * 1000)
    return Entry(one["path"].rpartition("/")[2], one["size"], modified_ms, False)


@contextmanager
def _explained(path: str, what: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} does not exist") from None
    except BaseError as error:
        said = _first_line(error)
        raise FilesError(
            f"cannot {what} {path}: {said}; make sure that the worker can use that place (credentials, "
            "rights, space)",
            is_outage=bool(_OUTAGE.search(str(error))),
        ) from None


def _first_line(error: Exception) -> str:
    """Return the first line, without the client's stack, the server's page and secrets in URLs."""
    return _SECRET.sub(r"\1\2***", str(error).partition("\n")[0].partition(": <")[0])
