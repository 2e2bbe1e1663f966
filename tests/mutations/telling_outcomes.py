"""A plugin for the pytest that runs in a copy: what became of each test, and whose code it was."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from patching import PACKAGES

TIMEOUT = "timeout"
_outcomes: dict[str, dict[str, str]] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> object:
    report = yield
    phases = _outcomes.setdefault(item.nodeid, {})
    phases[call.when] = "passed" if report.passed else _raised(call)
    return report


def _raised(call: pytest.CallInfo[None]) -> str:
    if call.excinfo is None:
        return "failed"
    # In the words of pytest-timeout.
    is_late = call.excinfo.errisinstance(pytest.fail.Exception) and "Timeout (>" in str(call.excinfo.value)
    return TIMEOUT if is_late else call.excinfo.typename


def pytest_sessionfinish() -> None:
    here = Path.cwd()
    files = {
        name: module.__file__
        for name, module in sys.modules.items()
        if name.partition(".")[0] in PACKAGES and getattr(module, "__file__", None)
    }
    strangers = [name for name, file in files.items() if not Path(str(file)).is_relative_to(here)]
    if not files:
        strangers = ["(nothing of the project was imported)"]
    told = {"outcomes": _outcomes, "strangers": sorted(strangers)}
    Path(os.environ["OUTCOMES"]).write_text(json.dumps(told), "utf-8")
