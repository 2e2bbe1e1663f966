"""Jars are resolved once, whole or not at all, and used again without a network."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

from handlers.spark.runtime import jars
from handlers.spark.runtime.jars import JarsError, kafka_jars, resolve
from handlers.spark.runtime.versions import JavaError, coordinate, find_java

NOWHERE = "org.example.binlane:there-is-no-such-library:1.0"
RESOLVE = (
    "import sys; from handlers.spark.runtime.jars import resolve; print(resolve(['a:b:1'], kind='test'))"
)

DIGEST = hashlib.sha256(b"jar\n").hexdigest()
FAKE_IVY = """\
#!/bin/sh
# What Ivy does, for a machine without a registry: one jar into the folder that -retrieve names.
if [ "$1" = -version ]; then echo 'openjdk version "17.0.1" 2021-10-19' >&2; exit 0; fi
while [ "$1" != -retrieve ]; do shift; done
echo run >> "$BINLANE_TEST_RUNS"
sleep 0.3
mkdir -p "$(dirname "$2")"
echo jar > "$(dirname "$2")/b-1.jar"
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "binlane" / "jars"


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Puts the resolving Java in place; returns how often it ran."""
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(FAKE_IVY)
    java.chmod(0o755)
    log = tmp_path / "runs"
    log.touch()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    monkeypatch.setenv("BINLANE_TEST_RUNS", str(log))
    return lambda: len(log.read_text().splitlines())


def test_a_resolved_folder_is_used_again_without_resolving(cache: Path, runs: Callable[[], int]) -> None:
    first = resolve(["a:b:1"], kind="test")
    second = resolve(["a:b:1"], kind="test")

    assert first == second
    assert [jar.name for jar in first] == ["b-1.jar"]
    assert first[0].is_relative_to(cache)
    assert runs() == 1


@pytest.mark.parametrize("hindrance", ["no folder can be made", "no file can be made"])
def test_a_cache_that_cannot_be_written_is_told_with_what_to_do(
    hindrance: str, cache: Path, runs: Callable[[], int]
) -> None:
    (jar,) = resolve(["a:b:1"], kind="test")
    if hindrance == "no file can be made":
        jar.unlink()
        lock = jar.parent.with_suffix(".lock")
        lock.unlink()
        lock.mkdir()
    else:
        cache.rename(cache.with_name("away"))
        cache.touch()

    with pytest.raises(JarsError, match=r"test jars \(a:b:1\) are not in .* put them into the image"):
        resolve(["a:b:1"], kind="test")

    assert runs() == 1


def test_other_coordinates_or_exclusions_have_a_folder_of_their_own(
    cache: Path, runs: Callable[[], int]
) -> None:
    folders = {
        resolve(["a:b:1"], kind="test")[0].parent,
        resolve(["a:b:2"], kind="test")[0].parent,
        resolve(["a:b:1"], kind="test", without=["c"])[0].parent,
    }

    assert len(folders) == 3
    assert runs() == 3


DAMAGES = {
    "missing": Path.unlink,
    "cut": lambda jar: jar.write_text("j"),
    "another of the same size": lambda jar: jar.write_text("rat\n"),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_folder_is_resolved_again(
    damage: Callable[[Path], object], cache: Path, runs: Callable[[], int]
) -> None:
    (jar,) = resolve(["a:b:1"], kind="test")
    damage(jar)

    assert resolve(["a:b:1"], kind="test") == [jar]
    assert jar.read_text() == "jar\n"
    assert runs() == 2


def test_a_jar_that_is_as_it_must_be_is_used(cache: Path, runs: Callable[[], int]) -> None:
    digests = {"b-1.jar": DIGEST}
    assert resolve(["a:b:1"], kind="test", digests=digests) == resolve(
        ["a:b:1"], kind="test", digests=digests
    )
    assert runs() == 1


@pytest.mark.parametrize(
    ("digests", "told"),
    [
        ({"b-1.jar": "0" * 64}, f"the downloaded b-1.jar has another digest than {'0' * 64}"),
        ({"c-1.jar": DIGEST}, "the downloaded b-1.jar is not known"),
    ],
)
def test_a_download_that_is_something_else_is_refused_and_leaves_nothing(
    cache: Path, runs: Callable[[], int], digests: dict[str, str], told: str
) -> None:
    with pytest.raises(JarsError, match=told):
        resolve(["a:b:1"], kind="test", digests=digests)
    assert [path.suffix for path in cache.iterdir()] == [".lock"]


def test_what_stands_in_the_cache_must_be_what_is_known_too(cache: Path, runs: Callable[[], int]) -> None:
    """Whoever can write the cache can write its manifest."""
    (jar,) = resolve(["a:b:1"], kind="test", digests={"b-1.jar": DIGEST})
    jar.write_text("rat\n")
    manifest = jar.with_name("manifest.json")
    manifest.write_text(manifest.read_text().replace(DIGEST, hashlib.sha256(b"rat\n").hexdigest()))
    assert resolve(["a:b:1"], kind="test", digests={"b-1.jar": DIGEST}) == [jar]
    assert jar.read_text() == "jar\n"
    assert runs() == 2


def test_all_jars_of_kafka_and_delta_are_known() -> None:
    known = jars.known_digests()
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in known.values())
    found = [*jars.delta_jars(), *resolve(jars.KAFKA_COORDINATES, kind="kafka", digests=known)]
    assert {jar.name for jar in found} <= known.keys()
    assert len(found) > 40


def test_what_a_killed_process_left_is_removed_and_not_used(cache: Path, runs: Callable[[], int]) -> None:
    (jar,) = resolve(["a:b:1"], kind="test")
    leftover = cache / f".{jar.parent.name}-killed"
    jar.parent.rename(leftover)

    assert resolve(["a:b:1"], kind="test") == [jar]
    assert not leftover.exists()
    assert runs() == 2


def test_processes_that_ask_at_once_resolve_once(cache: Path, runs: Callable[[], int]) -> None:
    processes = [
        subprocess.Popen([sys.executable, "-c", RESOLVE], stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    answers = {process.communicate(timeout=60)[0].splitlines()[-1] for process in processes}

    assert len(answers) == 1
    assert "b-1.jar" in answers.pop()
    assert runs() == 1


def test_threads_that_ask_at_once_resolve_once(cache: Path, runs: Callable[[], int]) -> None:
    threads = [threading.Thread(target=resolve, args=(["a:b:1"],), kwargs={"kind": "test"}) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert runs() == 1


def test_a_library_that_does_not_exist_is_named_and_leaves_nothing(cache: Path) -> None:
    """The real Ivy, which says the same with and without a network."""
    with pytest.raises(JarsError, match=r"the test jars \(org\.example.*\) cannot be resolved.*not found"):
        resolve([NOWHERE], kind="test")

    assert [path.suffix for path in cache.iterdir()] == [".lock"]


def test_the_jars_that_spark_ships_are_left_out_of_deltas(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, object] = {}
    monkeypatch.setattr(jars, "resolve", lambda coordinates, **more: asked.update(more) or list(coordinates))

    assert [str(each) for each in jars.delta_jars()] == [coordinate("delta", metadata.version("pyspark"))]
    without = asked["without"]
    assert isinstance(without, set)
    assert {"scala-library", "antlr4-runtime", "spark-core_2.13", "jackson-databind"} <= without
    assert "delta-storage" not in without


def test_kafkas_jars_come_from_the_installation_that_the_variable_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "libs").mkdir()
    for name in ("kafka_2.13-4.0.0.jar", "slf4j-api-1.jar", "notes.txt"):
        (tmp_path / "libs" / name).touch()
    monkeypatch.setenv("BINLANE_KAFKA_HOME", str(tmp_path))

    assert [jar.name for jar in kafka_jars()] == ["kafka_2.13-4.0.0.jar", "slf4j-api-1.jar"]


def test_a_variable_that_names_no_kafka_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BINLANE_KAFKA_HOME", str(tmp_path))

    with pytest.raises(JarsError, match=r"BINLANE_KAFKA_HOME=.* is not a Kafka installation"):
        kafka_jars()


def test_kafkas_jars_come_from_the_installation_on_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "kafka"
    for folder in (home / "libs", home / "bin", tmp_path / "bin"):
        folder.mkdir(parents=True)
    (home / "libs" / "kafka_2.13-4.0.0.jar").touch()
    script = home / "bin" / "kafka-server-start.sh"
    script.touch(mode=0o755)
    (tmp_path / "bin" / script.name).symlink_to(script)
    monkeypatch.delenv("BINLANE_KAFKA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))

    assert kafka_jars() == [home / "libs" / "kafka_2.13-4.0.0.jar"]


def java_that_says(folder: Path, text: str) -> Path:
    executable = folder / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho '{text}' >&2\n")
    executable.chmod(0o755)
    return executable


def test_java_home_goes_before_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = java_that_says(tmp_path / "home", 'openjdk version "21.0.2" 2024-01-16')
    other = java_that_says(tmp_path / "path", 'openjdk version "17.0.1" 2021-10-19')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{other.parent}:/usr/bin:/bin")

    java = find_java()

    assert (java.executable, java.version, java.home) == (chosen, 21, tmp_path / "home")


def test_a_java_on_path_serves_when_java_homes_is_too_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java_that_says(tmp_path / "home", 'java version "1.8.0_412"')
    chosen = java_that_says(tmp_path / "path", 'openjdk version "25-ea" 2025-09-16')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{chosen.parent}:/usr/bin:/bin")

    assert find_java()[:2] == (chosen, 25)


def test_without_a_new_enough_java_one_line_says_what_was_found_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java_that_says(tmp_path / "home", 'java version "1.8.0_412"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(
        JavaError, match=r"^Java 17 or later.*JAVA_HOME gives .*/home/bin/java \(version 8\)\. .*openjdk-17"
    ):
        find_java()
