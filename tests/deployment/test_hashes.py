"""What `make` and the image install is what constraints.txt names, each file known by its SHA-256."""

from __future__ import annotations

import re
from pathlib import Path

PROJECT = Path(__file__).parents[2]


def pinned(file: str) -> dict[str, str]:
    """{name: version}"""
    found = re.findall(r"(?m)^([\w.-]+)==([^\s;]+)", (PROJECT / file).read_text())
    return {re.sub(r"[-_.]+", "-", name.lower()): version for name, version in found}


def packages(file: str) -> list[str]:
    """Each with its hashes."""
    text = re.sub(r"(?m)^#.*\n", "", (PROJECT / file).read_text())
    return re.split(r"\n(?=\S)", text.strip())


def test_every_package_of_the_constraints_is_known_by_its_hashes() -> None:
    constraints, hashed = pinned("constraints.txt"), pinned("constraints-hashed.txt")
    assert constraints.items() <= hashed.items(), "run tools/hash_constraints.sh"
    # Of other Pythons and systems than the one that constraints.txt was made on.
    assert hashed.keys() - constraints.keys() == {"async-timeout", "colorama", "httpx2-jsfetch"}


def test_the_image_has_packages_of_the_same_list() -> None:
    assert pinned("image-hashed.txt").items() <= pinned("constraints-hashed.txt").items()
    assert {"confluent-kafka", "pyspark", "duckdb", "grpcio", "hatchling"} <= pinned(
        "image-hashed.txt"
    ).keys()
    assert not {"pytest", "deltalake"} & pinned("image-hashed.txt").keys()


def test_the_image_without_spark_has_packages_of_the_same_list_and_none_of_sparks() -> None:
    slim = pinned("slim-hashed.txt")
    assert slim.items() <= pinned("image-hashed.txt").items()
    assert {"confluent-kafka", "sqlalchemy", "opentelemetry-sdk", "hatchling"} <= slim.keys()
    assert not {"pyspark", "pyarrow", "deltalake", "obstore", "pandas", "numpy", "grpcio"} & slim.keys()


def test_no_package_is_without_a_hash() -> None:
    for file in ("constraints-hashed.txt", "image-hashed.txt", "slim-hashed.txt", "sbom-hashed.txt"):
        for package in packages(file):
            first, *hashes = package.split(" \\\n")
            assert re.match(r"[\w.-]+==\S+", first), first
            assert hashes, first
            assert all(re.fullmatch(r" +--hash=sha256:[0-9a-f]{64}", each) for each in hashes), first


def test_hashes_are_asked_for_wherever_packages_are_installed() -> None:
    for file in ("tools/setup.sh", "Dockerfile"):
        installs = re.findall(r"pip[ _]install +(?:[^\n]*\\\n)*[^\n]*", (PROJECT / file).read_text())
        assert len(installs) > 1
        passed_on = [each for each in installs if '"$@"' in each]
        assert all("--no-deps" in each for each in passed_on or installs), file
        own = [each for each in installs if "--no-build-isolation" in each]
        assert all("--require-hashes" in each for each in installs if each not in own + passed_on), file
