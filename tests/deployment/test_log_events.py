"""docs/log-events.md has a line for each event that the code logs, and none besides."""

from __future__ import annotations

import re
from pathlib import Path

import log_events
import pytest
import yaml
from generate import stale

ROOT = Path(__file__).parents[2]
CODE = """\
from handlers.logs import get_logger
log = get_logger("x")
def one(self, error, bad):
    log.warning("one", table=1, error=error, exc_info=error)
    self._log.log(logging.INFO if bad else logging.ERROR, "two" if bad else "three", table=2)
    get_logger("y").exception("one", partition=3)
"""
TEXTS = {name: {"when": f"It is {name}.", "do": "Nothing."} for name in ("one", "two", "three")}


@pytest.fixture(autouse=True)
def _no_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_events, "STORMY", {"one": ("table",)})


def project(folder: Path, code: str = CODE, texts: object = TEXTS) -> Path:
    for package in log_events.PACKAGES:
        (folder / package).mkdir()
    (folder / "worker/some.py").write_text(code)
    (folder / "tools").mkdir()
    (folder / "tools/log_events.yaml").write_text(yaml.safe_dump(texts))
    return folder


def test_the_page_is_what_the_code_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert log_events.faults() == []
    assert "docs/log-events.md" not in stale(ROOT)
    names = re.findall(r"(?m)^\| `(\w+)`", (ROOT / "docs/log-events.md").read_text())
    assert names == sorted(names) == list(log_events.found())
    assert len(names) > 140


def test_an_event_is_told_with_its_levels_and_fields_wherever_it_is_logged(tmp_path: Path) -> None:
    page = log_events.page(project(tmp_path))
    assert page.endswith(
        "| `one`* | warning, error | It is one. | `table`, `error`, `partition` | Nothing. |\n"
        "| `three` | info, error | It is three. | `table` | Nothing. |\n"
        "| `two` | info, error | It is two. | `table` | Nothing. |\n"
    )


def test_an_event_without_a_line_and_a_line_without_an_event_are_faults(tmp_path: Path) -> None:
    texts = {**TEXTS, "four": {"when": "Never.", "do": "Nothing."}, "two": {"when": "It is."}}
    texts.pop("three")
    root = project(tmp_path, texts=texts)
    told = sorted(log_events.faults(root))
    assert told == [
        "four is logged nowhere",
        "three (worker/some.py) has no entry",
        "two must say when and do, each a text",
    ]
    with pytest.raises(ValueError, match=r"three .* has no entry"):
        log_events.page(root)


@pytest.mark.parametrize("line", ["log.info(name, table=1)", 'log.info("one", 1)', "tell = log.info"])
def test_a_name_that_is_not_written_out_is_a_fault(line: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"worker/some\.py:7: "):
        log_events.found(project(tmp_path, code=f"{CODE}{line}\n"))


def test_what_is_limited_is_logged_with_the_fields_that_it_is_limited_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_events, "STORMY", {"one": ("path",), "never": ()})
    assert log_events.faults(project(tmp_path)) == [
        "never is limited and logged nowhere",
        "one is limited by path, which it has not",
    ]


def test_one_event_has_one_level_but_for_those_that_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    several = {name for name, event in log_events.found().items() if len(event.levels) > 1}
    assert several == {
        "changes_passed_over",  # some come again after each restart: info; ten times as many: warning
        "checkpoint_failed",  # in a rebalance one commit may come too late: info
        "finished_map_off",  # where the system cannot do it: info; for a fault: warning
        "table_unmatched",  # a rule that nearly matches it: warning
        "topic_made_anew",  # records may be lost: error; a handler's marks begin anew: warning
    }
