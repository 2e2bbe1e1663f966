"""One table says which Spark works with which libraries; any other Spark is refused with what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from contextlib import nullcontext
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from handlers.spark.runtime import jars
from handlers.spark.runtime.versions import DEFAULT, LIBRARIES, UnknownSpark, check_server, coordinate

PROJECT = Path(__file__).parents[3]
CONFIGURATION = """\
kafka: {bootstrap_servers: "127.0.0.1:1", group_id: g, topics: [t]}
format: canal
tables: [{match: "a.*", handlers: [{type: spark, mode: replica}]}]
"""
PAIRS = "These pairs work: Spark 4.0 with Delta 4.4.0, Spark 4.1 with Delta 4.4.0, Spark 4.2 with Delta 4.4.0"


@pytest.mark.parametrize("spark", LIBRARIES)
def test_the_jars_of_every_pair_are_known_by_their_digests(spark: str) -> None:
    for library in LIBRARIES[spark].values():
        _, artifact, version = library.split(":")
        assert f"_{spark}_2.13" in artifact
        assert f"{artifact}-{version}.jar" in jars.known_digests()


def test_only_versions_of_the_table_can_be_installed() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    for extra, package in (("spark", "pyspark"), ("connect", "pyspark")):
        [pin] = [
            found.specifier
            for found in map(Requirement, project["optional-dependencies"][extra])
            if found.name == package
        ]
        allowed = [
            f"{major}.{minor}" for major in (3, 4, 5) for minor in range(10) if f"{major}.{minor}.9" in pin
        ]
        assert allowed == list(LIBRARIES)


def test_the_default_is_what_is_installed_and_in_the_image() -> None:
    for file in ("constraints.txt", "image-hashed.txt"):
        [pinned] = re.findall(r"(?m)^pyspark==(\d+\.\d+)\.", (PROJECT / file).read_text())
        assert pinned == DEFAULT


@pytest.mark.parametrize("version", ["4.2", "4.2.0", "4.2.17", "4.2.0.dev1"])
def test_every_patch_release_has_the_libraries_of_its_minor_version(version: str) -> None:
    assert coordinate("delta", version) == "io.delta:delta-spark_4.2_2.13:4.4.0"


@pytest.mark.parametrize("version", ["3.5.9", "4.3.0", "4.20.0", "14.2.0", "preview"])
def test_another_spark_is_refused_with_the_pairs_that_work(version: str) -> None:
    with pytest.raises(UnknownSpark, match=re.escape(f"no Delta for Spark {version}. {PAIRS}")):
        coordinate("delta", version)
    with pytest.raises(UnknownSpark, match=r"knows no Nothing for Spark 4\.2\.0"):
        coordinate("nothing", "4.2.0")


@pytest.mark.parametrize(
    ("server", "client", "refused"),
    [
        ("4.2.0", "4.2.1", ""),
        ("4.2.0", "4.0.5", ""),
        ("4.1.4", "4.0.5", ""),
        ("4.1.4", "4.2.0", "Spark 4.1.4 is older than pyspark 4.2.0. .*pip install 'pyspark~=4.1.0'"),
        ("4.0.1", "4.1.4", "Spark 4.0.1 is older than pyspark 4.1.4. .*pip install 'pyspark~=4.0.0'"),
        ("3.5.9", "4.0.5", f"no Delta for Spark 3.5.9. {PAIRS}"),
        ("4.3.0", "4.2.0", f"no Delta for Spark 4.3.0. {PAIRS}"),
    ],
)
def test_a_connect_server_may_be_newer_than_its_client_and_never_older(
    server: str, client: str, refused: str
) -> None:
    with pytest.raises(UnknownSpark, match=refused) if refused else nullcontext():
        check_server(server, client)


def test_a_worker_with_another_pyspark_says_which_to_install(tmp_path: Path) -> None:
    """The real command, which finds an old pyspark first. It lacks modules, such as pyspark.errors."""
    (tmp_path / "site/pyspark").mkdir(parents=True)
    (tmp_path / "site/pyspark/__init__.py").touch()
    (tmp_path / "site/pyspark-3.3.4.dist-info").mkdir()
    metadata = tmp_path / "site/pyspark-3.3.4.dist-info/METADATA"
    metadata.write_text("Metadata-Version: 2.1\nName: pyspark\nVersion: 3.3.4\n")
    (tmp_path / "c.yaml").write_text(CONFIGURATION)

    ended = subprocess.run(
        [sys.executable, "-m", "binlane", "run", "c.yaml"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path / 'site'}:{PROJECT}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert ended.returncode == 1
    assert f"binlane knows no Delta for Spark 3.3.4. {PAIRS}. Install one of them: pip" in ended.stderr
