from __future__ import annotations

import sys
from pathlib import Path
from textwrap import dedent

import pytest
from configuration.shorthand import KAFKA, TABLES, Faults, Load, complete

from worker.configuration import Configuration, ConfigurationError, load

MODULE = '''\
from pydantic import BaseModel, ConfigDict, field_validator

from handlers import Handler


class Copy(Handler):
    """Options by its signature."""

    def __init__(self, url, *, retries=3):
        self.url = url

    def handle(self, batch):
        pass


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    password: str
    size: int = 1

    @field_validator("size")
    @classmethod
    def even(cls, size):
        if size % 2:
            raise ValueError(f"{size} is odd")
        return size


class Typed(Handler):
    options_model = Options

    def __init__(self, **options):
        self.options = Options(**options)

    def handle(self, batch):
        pass


def clean(change):
    return change
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the module `neighbour`, whose handlers are `Copy` and `Typed`."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "neighbour", raising=False)
    (tmp_path / "neighbour.py").write_text(MODULE)
    return tmp_path


@pytest.fixture
def read(folder: Path) -> Load:
    """`read(text, NAME=value)`: the configuration that `text` says, after a usable kafka section, and before
    usable tables if it has none."""

    def read(
        text: str = "", *, kafka: str = KAFKA, tables: str = TABLES, **environment: str
    ) -> Configuration:
        path = folder / "shop.yaml"
        path.write_text(complete(kafka + dedent(text), tables))
        return load(path, environment=environment)

    return read


@pytest.fixture
def faults(read: Load, folder: Path) -> Faults:
    """`faults(text, NAME=value)`: the lines that are printed for it, without the folder's name."""

    def faults(text: str = "", *, kafka: str = KAFKA, tables: str = TABLES, **environment: str) -> list[str]:
        with pytest.raises(ConfigurationError) as caught:
            read(text, kafka=kafka, tables=tables, **environment)
        lines = str(caught.value).split("\n")
        assert [str(fault) for fault in caught.value.faults] == lines
        return [line.replace(f"{folder}/", "") for line in lines]

    return faults
