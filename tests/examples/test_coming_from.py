"""Each configuration of docs/coming-from.md is one that `binlane check` takes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from worker.cli import app

PAGE = Path(__file__).parents[2] / "docs" / "coming-from.md"
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.DOTALL | re.MULTILINE))


def check(folder: Path, text: str) -> tuple[int, str]:
    """(exit code, output) of `binlane check` upon a file with this text."""
    (folder / "shop.yaml").write_text(text)
    found = CliRunner().invoke(app, ["check", str(folder / "shop.yaml")], standalone_mode=False)
    return found.return_value, found.output


@pytest.mark.parametrize("name", SECTIONS)
def test_the_configuration_is_usable_and_nothing_is_noted(name: str, tmp_path: Path) -> None:
    [text] = re.findall(r"^```yaml\n(.*?)^```", SECTIONS[name], re.DOTALL | re.MULTILINE)

    code, output = check(tmp_path, text)

    assert (code, "shop.yaml: usable" in output, "Note:" in output) == (0, True, False), output


def test_a_configuration_that_is_wrong_is_found(tmp_path: Path) -> None:
    assert len(SECTIONS) == 6
    [text] = re.findall(r"^```yaml\n(.*?)^```", SECTIONS["canal-adapter"], re.DOTALL | re.MULTILINE)

    assert check(tmp_path, text.replace("schema:", "shcema:"))[0] != 0
