"""What a release consists of: one version everywhere, and a wheel and an sdist that hold what they need."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import pytest
from archives import opened_tar
from release_building import PROJECT, build

from worker import __version__

PACKAGES = ("binlane", "worker", "offsets", "handlers")
CONFIG = """\
kafka: {bootstrap_servers: localhost:9092, group_id: g, topics: [example.canal]}
format: canal
tables:
  - {match: shop.*, handlers: [{type: log}]}
"""


def sources() -> set[str]:
    found = (each for package in PACKAGES for each in (PROJECT / package).rglob("*") if each.is_file())
    return {str(each.relative_to(PROJECT)) for each in found if "__pycache__" not in each.parts}


def try_commands(binlane: Sequence[str], folder: Path, **environment: str) -> None:
    """Those that need neither a Kafka nor Java, in a folder that is not the project's."""
    (folder / "shop.yaml").write_text(CONFIG)
    (folder / "canal.jsonl").write_bytes((PROJECT / "examples/formats/samples/canal.jsonl").read_bytes())
    (folder / "own.py").write_text("import worker; print(worker.__file__)")

    def told(*arguments: str) -> str:
        command, env = [*binlane, *arguments], os.environ | environment
        done = subprocess.run(command, cwd=folder, env=env, check=True, capture_output=True, text=True)
        return done.stdout

    assert told("--version") == f"binlane {__version__}\n"
    assert json.loads(told("schema"))["required"] == ["kafka", "tables"]
    assert "shop.*" in told("check", "shop.yaml")
    assert "shop.orders" in told("check", "shop.yaml", "--sample", "canal.jsonl")


def test_the_version_stands_in_one_place_and_all_others_agree() -> None:
    assert version("binlane") == __version__, "make setup"
    assert not re.search(r'(?m)^version = "', (PROJECT / "pyproject.toml").read_text())
    named = {
        "Dockerfile": r'image\.version="([^"]+)"',
        "k8s/base/deployment.yaml": r"image: binlane:(\S+)",
        "docs/deployment.md": r"(?:binlane:|newTag: )(\d+\.\d+\.\d+)",
    }
    for file, pattern in named.items():
        found = re.findall(pattern, (PROJECT / file).read_text())
        assert found, file
        assert set(found) == {__version__}, file


def test_the_wheel_holds_all_that_the_packages_need_and_runs_without_the_project(tmp_path: Path) -> None:
    wheel = build("wheel", tmp_path / "dist")
    with zipfile.ZipFile(wheel) as file:
        names = {name for name in file.namelist() if ".dist-info/" not in name}
        file.extractall(tmp_path / "site")
    assert wheel.name == f"binlane-{__version__}-py3-none-any.whl"
    assert names == sources()
    assert {"handlers/spark/runtime/jars.sha256", "worker/http/page/page.html", "binlane/py.typed"} <= names
    (tmp_path / "empty").mkdir()
    try_commands([sys.executable, "-m", "binlane"], tmp_path / "empty", PYTHONPATH=str(tmp_path / "site"))
    run = [sys.executable, "own.py"]
    env = os.environ | {"PYTHONPATH": str(tmp_path / "site")}
    ran = subprocess.run(run, cwd=tmp_path / "empty", env=env, check=True, capture_output=True, text=True)
    assert ran.stdout.strip() == str(tmp_path / "site/worker/__init__.py")


def test_the_sdist_holds_what_builds_the_wheel_and_not_the_tests(tmp_path: Path) -> None:
    sdist = build("sdist", tmp_path / "dist")
    with opened_tar(sdist) as file:
        file.extractall(tmp_path)
    unpacked = tmp_path / sdist.name.removesuffix(".tar.gz")
    of_the_project = {each.name for each in unpacked.iterdir() if not each.name.startswith(".")}
    lists = {"constraints.txt", "constraints-hashed.txt"}
    texts = {"CHANGELOG.md", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml"}
    assert of_the_project == {*PACKAGES, *lists, *texts}
    wheel = build("wheel", tmp_path / "again", unpacked)
    with zipfile.ZipFile(wheel) as file:
        assert {name for name in file.namelist() if ".dist-info/" not in name} == sources()


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_the_wheel_and_the_sdist_work_in_empty_environments_with_and_without_extras(tmp_path: Path) -> None:
    def pip(environment: str, *arguments: str) -> None:
        command = [str(tmp_path / environment / "bin/python"), "-m", "pip", "install", "--quiet"]
        subprocess.run([*command, "--constraint", str(PROJECT / "constraints.txt"), *arguments], check=True)

    def probe(environment: str, code: str) -> None:
        subprocess.run([str(tmp_path / environment / "bin/python"), "-c", code], cwd=tmp_path, check=True)

    found = {target: build(target, tmp_path / target) for target in ("wheel", "sdist")}
    for target, built in found.items():
        subprocess.run([sys.executable, "-m", "venv", str(tmp_path / f"of-{target}")], check=True)
        pip(f"of-{target}", str(built))
        folder = tmp_path / f"from-{target}"
        folder.mkdir()
        try_commands([str(tmp_path / f"of-{target}/bin/binlane")], folder)
        probe(f"of-{target}", "import importlib.util as u; assert u.find_spec('pyspark') is None")
    pip("of-wheel", f"{found['wheel']}[connect,otel,plots]")
    try_commands([str(tmp_path / "of-wheel/bin/binlane")], tmp_path / "from-wheel")
    probe("of-wheel", "import duckdb, matplotlib, opentelemetry.sdk, pyspark.sql.connect.session")


@pytest.mark.soak
def test_make_dist_leaves_a_wheel_an_sdist_an_sbom_and_their_checksums() -> None:
    subprocess.run(["make", "dist"], cwd=PROJECT, check=True, capture_output=True)
    dist = PROJECT / "dist"
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=dist, check=True)
    bom = json.loads((dist / f"binlane-{__version__}.cdx.json").read_text())
    assert (bom["specVersion"], bom["metadata"]["component"]["version"]) == ("1.6", __version__)
    packages = {each["name"]: each["version"] for each in bom["components"] if "purl" in each}
    pinned = dict(re.findall(r"(?m)^([\w.-]+)==([^\s;]+)", (PROJECT / "image-hashed.txt").read_text()))
    assert packages == pinned
    jars = [each for each in bom["components"] if each["bom-ref"].startswith("jar:")]
    assert len(jars) == len((PROJECT / "handlers/spark/runtime/jars.sha256").read_text().splitlines())
