"""Java's archive of Spark's classes: made once, used where it is whole, passed over in silence elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from spark_sessions import QUICK

from handlers.spark import training
from handlers.spark.runtime import class_archive, jars
from handlers.spark.runtime.class_archive import (
    OPTIONS,
    is_whole,
    kept,
    lock_of,
    named,
    place,
    usable,
    with_archive,
)
from handlers.spark.runtime.versions import find_java


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of its own, with the jars that are there."""
    there = jars.cache_folder() / "jars"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "binlane/classes").mkdir(parents=True)
    (tmp_path / "binlane/jars").symlink_to(there)
    return tmp_path / "binlane/classes"


def test_an_archive_is_used_that_is_whole_and_none_that_was_cut_off(cache: Path) -> None:
    assert kept(place()) is None
    assert with_archive({OPTIONS: "-Xss2m"}) == {OPTIONS: "-Xss2m"}
    whole = named(place(), 1000)
    whole.write_bytes(bytes(1000))
    assert kept(place()) == whole
    options = with_archive({OPTIONS: "-Xss2m", "spark.x": "1"})
    assert options["spark.x"] == "1"
    assert options[OPTIONS].startswith(f"-XX:SharedArchiveFile={whole} ")
    assert options[OPTIONS].endswith(" -Xss2m"), "the user's own comes last, and wins"
    whole.write_bytes(bytes(999))
    assert kept(place()) is None


@pytest.mark.parametrize(
    "own", ["-Xshare:off", "-XX:SharedArchiveFile=/own.jsa", "-XX:ArchiveClassesAtExit=/own.jsa"]
)
def test_who_names_an_archive_of_their_own_or_wants_none_keeps_that(cache: Path, own: str) -> None:
    named(place(), 3).write_bytes(b"jsa")
    assert with_archive({OPTIONS: own}) == {OPTIONS: own}


def test_a_place_that_spark_would_take_for_several_options_is_not_used(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spaced = cache.parents[1] / "two words"
    spaced.mkdir()
    (spaced / "binlane/classes").mkdir(parents=True)
    (spaced / "binlane/jars").symlink_to(cache.parent / "jars")
    monkeypatch.setenv("XDG_CACHE_HOME", str(spaced))
    named(place(), 3).write_bytes(b"jsa")
    assert kept(place()) is not None
    assert with_archive({}) == {}


def test_another_java_or_spark_has_an_archive_of_its_own(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = place()
    monkeypatch.setattr(class_archive.metadata, "version", lambda _: "9.9.9")
    assert place() != before


def test_the_same_files_at_another_place_have_one_archive_as_long_as_both_are_there(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        (folder / "connect-repl").mkdir(parents=True)  # pyspark has a folder there, too
    for name in ("a.jar", "b.jar"):
        (one / name).write_text(name)
        (two / name).hardlink_to(one / name)
    monkeypatch.setattr(class_archive, "spark_jars_folder", lambda: one)
    archive = named(place(), 3)
    archive.write_bytes(b"jsa")
    lock_of(place()).write_text(str(one))
    os.utime(one / "connect-repl", (1, 1))  # as of another installation at the same place
    assert usable() == archive
    lock_of(place().with_name("spark-other")).write_bytes(b"\xff\0 of no use")
    lock_of(place().with_name("spark-folder")).mkdir()
    lock_of(place().with_name("spark-link")).symlink_to(tmp_path / "nowhere")
    os.mkfifo(lock_of(place().with_name("spark-fifo")))  # whoever reads it waits for ever

    monkeypatch.setattr(class_archive, "spark_jars_folder", lambda: two)
    assert kept(place()) is None
    assert usable() == archive
    assert f"SharedArchiveFile={archive} " in with_archive({})[OPTIONS]
    (one / "c.jar").write_text("another Delta's")
    assert usable() is None
    (one / "c.jar").unlink()
    copied = (two / "b.jar").read_bytes()
    (two / "b.jar").unlink()
    (two / "b.jar").write_bytes(copied)  # to Java another file
    assert usable() is None
    (two / "b.jar").unlink()
    (two / "b.jar").hardlink_to(one / "b.jar")
    assert usable() == archive
    one.rename(tmp_path / "gone")  # Java looks for the files that it was made of, too
    assert usable() is None


def _writable(path: Path) -> None:
    path.chmod(path.stat().st_mode | 0o002)


def _anothers(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() == 0:
        os.chown(path, 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)


@pytest.mark.parametrize("above", range(4), ids=["archive", "classes", "binlane", "cache"])
def test_an_archive_that_another_user_could_have_put_there_is_not_used(
    cache: Path, monkeypatch: pytest.MonkeyPatch, above: int
) -> None:
    archive = named(place(), 3)
    archive.write_bytes(b"jsa")
    changed = [archive, *archive.parents][above]
    before = changed.stat().st_mode
    _writable(changed)
    assert kept(place()) is None
    assert with_archive({}) == {}
    changed.chmod(before)
    assert kept(place()) == archive
    _anothers(changed, monkeypatch)
    assert kept(place()) is None


def test_a_folder_for_everybody_in_which_names_are_their_owners_is_as_good_as_another(
    cache: Path, tmp_path: Path
) -> None:
    archive = named(place(), 3)
    archive.write_bytes(b"jsa")
    tmp_path.chmod(0o1777)
    assert kept(place()) == archive


def test_an_archive_that_is_a_link_is_not_used(cache: Path) -> None:
    other = cache / "other"
    link = named(place(), len(str(other)))
    other.write_bytes(bytes(len(str(other))))
    link.symlink_to(other)
    assert kept(place()) is None


def test_none_is_made_where_another_user_could_change_it(cache: Path) -> None:
    _writable(cache)
    with pytest.raises(PermissionError, match="XDG_CACHE_HOME"):
        training.main()
    assert list(cache.iterdir()) == []


def test_a_machine_keeps_the_archives_that_were_used_last_and_no_leftovers(cache: Path) -> None:
    wanted = place()
    for number in range(10):
        other = wanted.with_name(f"spark-{number}")
        named(other, 3).write_bytes(b"jsa")
        lock_of(other).touch()
        # Made in this order, and the first was used since.
        os.utime(named(other, 3), (number, number))
        os.utime(lock_of(other), (100 if number == 0 else number,) * 2)
    old, young, own = cache / ".spark-1-a", cache / ".spark-1-b", cache / f".{wanted.name}-c"
    for folder in (old, young, own):
        folder.mkdir()
    os.utime(old, (0, 0))
    training.remove_unused(wanted)
    assert sorted(each.name for each in cache.glob("*.jsa")) == [
        "spark-0.3.jsa",
        "spark-8.3.jsa",
        "spark-9.3.jsa",
    ]
    assert [each for each in (old, young, own) if each.exists()] == [young]


def test_a_use_is_noted_without_touching_the_archive(cache: Path) -> None:
    archive = named(place(), 3)
    archive.write_bytes(b"jsa")
    for each in (archive, lock_of(place())):
        each.touch()
        os.utime(each, (1, 1))
    assert with_archive({}) != {}
    assert archive.stat().st_mtime == 1
    assert lock_of(place()).stat().st_mtime > 1


def test_an_archive_that_java_did_not_finish_is_not_taken(tmp_path: Path) -> None:
    made = tmp_path / "spark.jsa"
    assert not is_whole(made)
    made.write_bytes(bytes(4096) + b"regions")
    assert not is_whole(made)
    java = str(find_java().executable)
    subprocess.run([java, f"-XX:ArchiveClassesAtExit={made}", "-Xlog:disable", "-version"], check=True)
    assert is_whole(made)


def _damaged(archive: Path) -> None:
    data = bytearray(archive.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 64] = bytes(each ^ 0xFF for each in data[middle : middle + 64])
    archive.write_bytes(data)


def _no_archive(archive: Path) -> None:
    archive.write_text("this is no archive")


@pytest.mark.parametrize("harm", [_damaged, _no_archive, Path.unlink])
def test_java_passes_over_an_archive_that_it_cannot_use_in_silence(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    archive = tmp_path / "x.jsa"
    java = str(find_java().executable)
    subprocess.run([java, f"-XX:ArchiveClassesAtExit={archive}", "-Xlog:disable", "-version"], check=True)
    archive.chmod(0o644)
    said = []
    for change in (None, harm):
        if change is not None:
            change(archive)
        options = [f"-XX:SharedArchiveFile={archive}", *class_archive._USE.split()]
        run = subprocess.run([java, *options, "-version"], capture_output=True, text=True, check=True)
        said.append([line for line in run.stderr.splitlines() if "VM" not in line])
        assert run.stdout == ""
    assert said[0] == said[1]


@pytest.mark.soak  # half a minute of CPU
@pytest.mark.timeout(600)
def test_two_who_make_it_at_once_make_one_and_spark_takes_its_classes_from_it(
    cache: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "handlers.spark.training"]
    both = [subprocess.Popen(command, cwd=Path(__file__).parents[3]) for _ in range(2)]
    assert [each.wait(500) for each in both] == [0, 0]
    archive = kept(place())
    assert archive is not None
    assert sorted(each.name for each in cache.iterdir()) == sorted([archive.name, f"{place().name}.lock"])
    log = tmp_path / "classes.log"
    conf = {**QUICK["conf"], OPTIONS: f"{QUICK['conf'][OPTIONS]} -Xlog:class+load:file={log}"}
    script = (
        "import sys; from pathlib import Path; from handlers.spark.options import SparkSection; "
        "from handlers.spark.runtime.session import acquire, release; "
        f"acquire(SparkSection(conf={conf!r}), Path(sys.argv[1]), 'x'); release()"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, env=dict(os.environ))
    loaded = log.read_text().splitlines()
    from_archive = [
        line for line in loaded if "org.apache.spark" in line and "shared objects file (top)" in line
    ]
    assert len(from_archive) > 1000
