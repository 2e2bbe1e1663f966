"""A whole configuration in the documentation can be used."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from worker.configuration.loading import load

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
WHOLE = [
    pytest.param(text, id=f"{page.name}-{number}")
    for page in sorted((ROOT / "docs").rglob("*.md"))
    for number, (kind, text) in enumerate(BLOCK.findall(page.read_text()))
    if kind == "yaml" and re.search(r"^kafka:.*^tables:", text, re.DOTALL | re.MULTILINE)
]


@pytest.mark.parametrize("text", WHOLE)
def test_a_whole_configuration_can_be_used(text: str, tmp_path: Path) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(text)
    has_own_handler = re.search(r"type: \"?[\w.]+:\w+", text) is not None
    load(path, environment={}, check_handlers=not has_own_handler)


def test_pages_have_configurations() -> None:
    assert len(WHOLE) >= 6
