"""The image with a connector has the jars of spark.packages, and the worker finds them."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from check_deployment import check_image

from handlers.spark.runtime.jars import resolve, spark_jars_folder

ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy" / "s3.Dockerfile"
[PACKAGES] = re.findall("^ARG PACKAGES=(.*)$", FILE.read_text(), flags=re.MULTILINE)


def code() -> str:
    """What the image's RUN gives Python."""
    [command] = re.findall(r"^RUN (python .*) \\$", FILE.read_text(), flags=re.MULTILINE)
    program, option, text, packages = shlex.split(command)
    assert (program, option, packages) == ("python", "-c", "${PACKAGES}")
    return text


def test_it_has_the_packages_of_the_manifests_and_the_version_of_sparks_hadoop() -> None:
    for folder in ("k8s/overlays/spark-on-kubernetes", "examples/kubernetes-shop/binlane"):
        spark = yaml.safe_load((ROOT / folder / "binlane.yaml").read_text())["spark"]
        assert " ".join(spark["packages"]) == PACKAGES
    [hadoop] = [jar.stem.rpartition("-")[2] for jar in spark_jars_folder().glob("hadoop-client-api-*.jar")]
    assert f"org.apache.hadoop:hadoop-aws:{hadoop}" == PACKAGES


def test_it_calls_what_is_there() -> None:
    [call] = [node for node in ast.walk(ast.parse(code())) if isinstance(node, ast.Call)]
    assert f"from {resolve.__module__} import {resolve.__name__};" in code()
    assert ast.unparse(call.func) == resolve.__name__
    assert [keyword.arg for keyword in call.keywords] == ["kind"]


def test_its_user_is_that_of_the_image_it_begins_from(shipped: Path) -> None:
    last = [
        re.findall("^USER (.*)$", path.read_text(), flags=re.MULTILINE)[-1]
        for path in (ROOT / "Dockerfile", FILE)
    ]
    assert last[0] == last[1]
    assert list(check_image(FILE)) == []
    path = shipped / "deploy" / "s3.Dockerfile"
    path.write_text(path.read_text().replace(f"USER {last[0]}\n", ""))
    assert any("must be a fixed uid that is not root" in fault for fault in check_image(path))


@pytest.mark.soak  # it asks Maven's repository
def test_the_worker_finds_what_the_image_resolved(tmp_path: Path) -> None:
    """With a small package in place of the connector. The second process has no Java to resolve with."""
    package = "org.slf4j:slf4j-api:2.0.17"
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", code(), package], env=environment, check=True)
    find = code().replace("resolve(", "print(*resolve(") + ")"
    without = {**environment, "JAVA_HOME": str(tmp_path), "PATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", find, package], env=without, check=True, capture_output=True, text=True
    )
    assert Path(done.stdout.strip()).name == "slf4j-api-2.0.17.jar"
