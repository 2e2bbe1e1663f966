"""What a broker's start finds done is what it would do itself."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from handlers.spark.runtime import class_archive
from handlers.spark.runtime.jars import kafka_jars
from worker.local import broker as broker_module
from worker.local import broker_guard
from worker.local.broker import Broker
from worker.local.broker_settings import BOOTSTRAP, bootstrap_of, java_options, place

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
import broker_classes


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty one, of this user's own."""
    monkeypatch.setattr(class_archive, "cache_folder", lambda: tmp_path)
    return tmp_path / "classes"


def formatted(folder: Path, bootstrap: bytes | None, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What a folder says of itself, formatted and not started."""

    class Formatted(Exception):
        pass

    def stop(*arguments: Any, **options: Any) -> None:
        raise Formatted

    monkeypatch.setattr(broker_module, "bootstrap_of", lambda jars, overrides: bootstrap)
    monkeypatch.setattr(broker_guard, "guarded", stop)
    with pytest.raises(Formatted):
        Broker(folder).start()
    lines = (folder / "data" / "meta.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if not line.startswith("#"))


def test_a_folder_is_formatted_as_by_kafkas_own_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_tool = formatted(tmp_path / "tool", None, monkeypatch)
    known = (tmp_path / "tool" / "data" / BOOTSTRAP).read_bytes()
    assert len(re.findall(rb"[a-z.]+\.version", known)) > 3, "features are on"
    by_us = formatted(tmp_path / "ours", known, monkeypatch)
    assert by_us.keys() == by_tool.keys()
    for name, value in by_tool.items():
        assert len(by_us[name]) == len(value), name
        assert (by_us[name] == value) == (not name.endswith(".id") or name == "node.id"), name
    assert (tmp_path / "ours" / "data" / BOOTSTRAP).read_bytes() == known
    names = [
        sorted(each.name for each in (tmp_path / which / "data").iterdir()) for which in ("tool", "ours")
    ]
    assert names[0] == names[1]


def test_other_settings_of_the_format_are_for_the_tool(cache: Path) -> None:
    jars = kafka_jars()
    cache.mkdir()
    place(jars).with_suffix(".checkpoint").write_bytes(b"known")
    assert bootstrap_of(jars, {"message.max.bytes": "1"}) == b"known"
    for name in ("node.id", "log.dirs", "controller.quorum.voters", "unstable.feature.versions.enable"):
        assert bootstrap_of(jars, {name: "x"}) is None
    cache.chmod(0o777)  # anybody could have put it there
    assert bootstrap_of(jars, {}) is None


def test_without_anything_prepared_a_start_does_it_itself(cache: Path) -> None:
    assert java_options(kafka_jars()) == []
    assert bootstrap_of(kafka_jars(), {}) is None


def test_a_broker_has_the_classes_that_are_kept(broker: Broker) -> None:
    options = java_options(kafka_jars())
    if not options and os.environ.get("CI") != "true":
        pytest.skip("none are kept: make class-archive")
    assert options[0].partition("=")[2] in Path(f"/proc/{broker.pid}/maps").read_text()


@pytest.mark.soak
def test_training_makes_what_a_start_finds(cache: Path) -> None:
    broker_classes.main()
    jars = kafka_jars()
    [archive, *_] = java_options(jars)
    file = Path(archive.partition("=")[2])
    assert file.parent == cache
    made = file.stat().st_mtime_ns
    broker_classes.main()
    assert file.stat().st_mtime_ns == made, "once"
    with Broker() as node:
        mapped = Path(f"/proc/{node.pid}/maps").read_text()
        assert str(file) in mapped
        assert (node.directory / "data" / BOOTSTRAP).read_bytes() == bootstrap_of(jars, {})
