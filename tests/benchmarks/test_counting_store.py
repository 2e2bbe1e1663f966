"""The object store of the benchmarks: what the worker's own client does in it, and the requests it counts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.spark.counting_store import CountingStore
from handlers.spark.log.stores.interface import AlreadyThere
from handlers.spark.log.stores.object_stores import ObjectFiles

LAKE = "s3a://lake/all"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[CountingStore]:
    with CountingStore() as made:
        for name, value in made.environment.items():
            monkeypatch.setenv(name, value)
        yield made


def test_a_file_is_put_once_read_listed_and_removed(store: CountingStore) -> None:
    files = ObjectFiles(LAKE)
    files.prove(LAKE)
    store.requests.clear()
    files.put(f"{LAKE}/a & b/1", b"one")
    with pytest.raises(AlreadyThere):
        files.put(f"{LAKE}/a & b/1", b"two")
    assert files.read(f"{LAKE}/a & b/1") == b"one"
    with files.open(f"{LAKE}/a & b/1") as file:
        file.seek(1)
        assert file.read() == b"ne"
    assert [(entry.name, entry.is_folder) for entry in files.list(LAKE)] == [("a & b", True)]
    [found] = files.list(f"{LAKE}/a & b")
    assert (found.name, found.size, found.is_folder) == ("1", 3, False)
    files.delete(f"{LAKE}/a & b/1")
    assert not files.exists(f"{LAKE}/a & b")
    with pytest.raises(FileNotFoundError):
        files.read(f"{LAKE}/a & b/1")
    assert store.requests["put"] == 2
    assert store.requests["delete"] == 1
    assert store.objects == {}


def test_a_folder_of_several_pages_is_listed_and_removed_whole(store: CountingStore) -> None:
    files = ObjectFiles(LAKE)
    for number in range(1_001):
        files.put(f"{LAKE}/many/{number}", b"")
    files.put(f"{LAKE}/other", b"")
    store.requests.clear()
    assert len(files.list(f"{LAKE}/many")) == 1_001
    assert store.requests == {"list": 2}
    assert [entry.name for entry in files.list_after(f"{LAKE}/many", "997")] == ["998", "999"]
    assert store.requests == {"list": 3}
    files.delete_tree(f"{LAKE}/many")
    assert list(store.objects) == ["/lake/all/other"]
