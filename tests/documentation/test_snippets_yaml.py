"""Every YAML that the documentation shows is a configuration, a part of one, or for Kustomize or Helm."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from pathlib import Path

import pytest
import yaml
from deployment.helm_chart import rendered
from documentation.blocks import ROOT, Block, blocks, each

from worker.configuration.document import ConfigurationError
from worker.configuration.loading import load

sys.path.insert(0, str(ROOT / "tools"))
from check_manifests import render

SHOWN = list(blocks("yaml"))
OF_KUSTOMIZE = [
    block for block in SHOWN if re.search(r"^(resources|patches|labels):", block.text, re.MULTILINE)
]
OF_HELM = [block for block in SHOWN if block.text.startswith("# values.yaml\n")]
POSITIONS = [block for block in SHOWN if block.text.startswith("initial:")]
"""Several values of one key: configuration/test_schema.py takes them one by one."""
CONFIGURATIONS = [block for block in SHOWN if block not in [*OF_KUSTOMIZE, *OF_HELM, *POSITIONS]]

KAFKA = "kafka: {bootstrap_servers: 'localhost:9092', group_id: g, topics: [t]}\n"
TABLES = "tables: [{match: '*', handlers: [{type: log}]}]\n"
OF_ANOTHER_MACHINE = ("    ssl.ca.location: /etc/kafka/ca.pem\n",)


def whole(text: str) -> str:
    """A configuration with this part in it."""
    if text.startswith("- type:"):
        text = f"handlers:\n{text}"
    if text.startswith("handlers:"):
        text = "tables:\n  - match: '*'\n" + textwrap.indent(text, "    ")
    given = set(re.findall(r"^(\w+):", text, re.MULTILINE))
    return text + "".join(part for part in (KAFKA, TABLES) if part.partition(":")[0] not in given)


def use(text: str, page: Path, folder: Path) -> None:
    """Raises ConfigurationError for a text that is none."""
    for line in OF_ANOTHER_MACHINE:
        text = text.replace(line, "")
    for path in re.findall(r"\$\{file:(.*?)\}", text):
        (folder / Path(path).name).write_text("a secret of these tests\n")
        text = text.replace(path, str(folder / Path(path).name))
    environment = dict.fromkeys(re.findall(r"\$\{(\w+)\}", text), "sixteen-and-more-characters")
    for module in re.findall(r"(?:function|transform): (\w+):", text):  # the page shows it, too
        [function] = [block.text for block in blocks("python") if block.page == page and defines(block)]
        (folder / f"{module}.py").write_text(function)
    (folder / "shop.yaml").write_text(whole(text))
    own_handler = re.search(r"type: \"?[\w.]+:\w+", text)
    load(folder / "shop.yaml", environment=environment, check_handlers=not own_handler)


def defines(block: Block) -> bool:
    return "def " in block.text and "def test_" not in block.text


@pytest.mark.parametrize("block", each(CONFIGURATIONS))
def test_a_configuration_or_a_part_of_one_can_be_used(block: Block, tmp_path: Path) -> None:
    assert isinstance(yaml.safe_load(block.text), dict | list)
    use(block.text, block.page, tmp_path)


@pytest.mark.parametrize(
    ("right", "wrong"), [("concurrency", "concurency"), ("driver_memory: 2g", "driver_memory: 2 gigabytes")]
)
def test_a_part_that_is_wrong_is_found(right: str, wrong: str, tmp_path: Path) -> None:
    [block] = [each for each in CONFIGURATIONS if "concurrency" in each.text]
    assert right in block.text
    with pytest.raises(ConfigurationError):
        use(block.text.replace(right, wrong), block.page, tmp_path)


@pytest.mark.parametrize("block", each(OF_KUSTOMIZE))
def test_what_kustomize_is_to_take_it_takes(block: Block, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "k8s", tmp_path / "k8s")
    own = tmp_path / "k8s" / "own"
    own.mkdir()
    (own / "binlane.yaml").write_text(KAFKA + TABLES)
    base = "" if "resources:" in block.text else "resources: [../base]\n"
    beside = re.match("# kustomization.yaml in a folder (k8s/own-.*)\n", block.text)
    if beside:
        (own / "kustomization.yaml").write_text("resources: [../base]\n")
        own = tmp_path / beside[1]
        own.mkdir()
    (own / "kustomization.yaml").write_text(base + block.text)
    kinds = [each["kind"] for each in render(own)]
    assert ("Job" if beside else "Deployment") in kinds


@pytest.mark.parametrize("block", each(OF_HELM))
def test_what_helm_is_to_take_it_takes(block: Block, helm: str, tmp_path: Path) -> None:
    """A value that the chart does not know is an error of its schema."""
    (tmp_path / "values.yaml").write_text(block.text)
    assert len(rendered(helm, "--values", str(tmp_path / "values.yaml"))) > 5


def test_all_kinds_are_found() -> None:
    found = (len(CONFIGURATIONS) > 30, len(OF_KUSTOMIZE), len(OF_HELM), len(POSITIONS))
    assert found == (True, 7, 1, 1)
