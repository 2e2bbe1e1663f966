"""What the README says to type works as it is typed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from delta_reading import read_delta
from deltalake import DeltaTable
from examples.example_runs import EXAMPLES, ROOT, RunExample, configurations
from integration.process import eventually
from spark_sessions import QUICK_JAVA
from typer.testing import CliRunner

from worker.broker import Broker
from worker.cli import app

pytestmark = pytest.mark.long

README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", README, re.DOTALL)
[SHOP, MIRROR_TABLES] = [text for language, text in BLOCKS if language == "yaml"]
[MIRROR] = [text for language, text in BLOCKS if language == "python"]


@pytest.fixture
def folder(tmp_path: Path, played: Broker) -> Path:
    """With the files of the README."""
    shop = SHOP.replace("localhost:9092", played.bootstrap_servers)
    (tmp_path / "shop.yaml").write_text(shop)
    own = shop.partition("tables:")[0].replace("shop-replica", "shop-mirror")
    (tmp_path / "own.yaml").write_text(own + MIRROR_TABLES)
    (tmp_path / "mirror.py").write_text(MIRROR)
    return tmp_path


def test_the_first_configuration_shows_a_sample(folder: Path) -> None:
    arguments = ["check", str(folder / "shop.yaml"), "--connect", "--sample"]
    sample = str(EXAMPLES / "formats/samples/canal.jsonl")

    found = CliRunner().invoke(app, [*arguments, sample], standalone_mode=False)

    assert found.return_value == 0, found.output
    assert "29 records: " in found.output
    assert "topic example.canal: reached" in found.output


def test_the_first_configuration_makes_the_tables(folder: Path, run_example: RunExample) -> None:
    run = run_example("shop", folder=folder, JAVA_TOOL_OPTIONS=QUICK_JAVA)
    orders = run.folder / "lake" / "shop" / "orders"

    ids = eventually(lambda: delta_ids(orders), within=120, what="the orders merged")
    run.stop()

    assert ids == [1000, 5001, 5003, 5004]


def delta_ids(table: Path) -> list[int]:
    """Of the newest version."""
    there = DeltaTable.is_deltatable(str(table))
    return sorted(row["id"] for row in read_delta(table, "id")) if there else []


def test_the_first_handler_prints_changes(folder: Path, run_example: RunExample) -> None:
    run = run_example("own", folder=folder)
    run.stop()

    printed = [line["text"] for line in run.worker.logged("unstructured")]
    assert len(printed) == 9
    assert printed[-1].startswith("insert shop.orders {'id': 5004} ")
    assert printed[-1].endswith(" EUR")


@pytest.mark.parametrize("page", [ROOT / "README.md", EXAMPLES / "README.md"], ids=["README", "examples"])
def test_what_a_page_names_is_there(page: Path) -> None:
    text = page.read_text()
    links = [page.parent / link for link in re.findall(r"\]\(([^)#]+)", text)]
    typed = [ROOT / path for path in re.findall(r"examples/[\w./-]+\.(?:yaml|py|jsonl)\b", text)]
    assert [str(path) for path in links + typed if not path.exists()] == []


def test_the_page_of_the_examples_names_each() -> None:
    text = (EXAMPLES / "README.md").read_text()
    assert [name for name in configurations() if f"]({name}.yaml)" not in text] == []
