"""`binlane` as others import and run it, also beside modules named `handlers`, `worker` and `offsets`."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from release_building import build

import binlane
import binlane.spark
import binlane.testing

ROOT = Path(__file__).parents[1]
CONFIG = """\
kafka: {{bootstrap_servers: "127.0.0.1:1", group_id: g, topics: [t]}}
tables: [{{match: "*", handlers: [{{type: "{type}"}}]}}]
"""
MIRROR = """
from {face} import Batch, Handler

class Mirror(Handler):
    def handle(self, batch: Batch) -> None: ...
"""
FOREIGN = "raise RuntimeError('somebody else\\'s')"
NAMES = ("handlers", "offsets", "worker")


def check(
    folder: Path, *, type: str, python_path: Path | None = None, command: list[str] | None = None
) -> subprocess.CompletedProcess[str]:
    config = folder / "shop.yaml"
    config.write_text(CONFIG.format(type=type))
    return subprocess.run(
        [*(command or [sys.executable, "-m", "binlane"]), "check", str(config)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(python_path or "")},
    )


def test_the_face_has_what_a_handler_needs() -> None:
    import handlers

    for name in {*binlane.__all__} - {"read"}:
        assert getattr(binlane, name) is getattr(handlers, name)
    needed = "Batch Change Handler HandlerContext PartialFailure Rejected TargetUnavailable"
    assert {*needed.split()} <= {*binlane.__all__}
    assert callable(binlane.testing.make_batch)
    assert callable(binlane.spark.current)


def test_spark_in_a_notebook_says_no_more_than_what_is_wrong(tmp_path: Path) -> None:
    script = (
        "import pydantic, binlane.spark\n"
        "from handlers.logs import get_logger\n"
        "try: binlane.spark.start(warehose='lake')\n"
        "except pydantic.ValidationError: print('refused')\n"
        "get_logger('spark').debug('spark_output')\n"
        "get_logger('spark').warning('spark_killed')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "refused\n"
    assert "spark_killed" in done.stderr
    assert "spark_output" not in done.stderr


@pytest.mark.parametrize("where", ["PYTHONPATH", "beside"])
@pytest.mark.parametrize("form", ["module", "package"])
def test_modules_of_binlanes_names_break_nothing(tmp_path: Path, where: str, form: str) -> None:
    place = tmp_path / "elsewhere" if where == "PYTHONPATH" else tmp_path
    for name in NAMES:
        file = place / (f"{name}.py" if form == "module" else f"{name}/__init__.py")
        file.parent.mkdir(exist_ok=True, parents=True)
        file.write_text(FOREIGN)
    done = check(tmp_path, type="log", python_path=place)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("file", "name", "face"),
    [
        ("handlers.py", "handlers", "binlane"),
        ("handlers.py", "handlers", "handlers"),
        ("worker/__init__.py", "worker", "binlane"),
        ("offsets/mirrors.py", "offsets.mirrors", "binlane"),
    ],
)
def test_a_handler_of_ones_own_may_be_in_a_module_of_such_a_name(
    tmp_path: Path, file: str, name: str, face: str
) -> None:
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(MIRROR.format(face=face))
    done = check(tmp_path, type=f"{name}:Mirror")
    assert (done.returncode, done.stderr) == (0, "")


def test_what_such_a_module_lacks_is_told_by_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "handlers.py").write_text(MIRROR.format(face="binlane"))
    done = check(tmp_path, type="handlers:Miror")
    assert done.returncode == 2
    assert "the module handlers has no Miror" in done.stderr
    assert "nearest: handlers:Mirror" in done.stderr
    done = check(tmp_path, type="worker.mirrors:Mirror")
    assert "there is no module worker.mirrors on PYTHONPATH" in done.stderr


def test_a_foreign_module_that_was_imported_before_is_told(tmp_path: Path) -> None:
    (tmp_path / "handlers.py").write_text("")
    done = subprocess.run(
        [sys.executable, "-c", "import handlers, binlane"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert "binlane needs its own package handlers, but " in done.stderr
    assert "import binlane first" in done.stderr


@pytest.mark.soak  # what is in it, and that it runs: deployment/test_release.py
def test_the_wheel_holds_all_that_runs(tmp_path: Path) -> None:
    wheel = build("wheel", tmp_path / "dist")
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    for package in ("binlane", *NAMES):
        files = [each for each in (ROOT / package).rglob("*") if each.is_file() and each.suffix != ".pyc"]
        missing = [each for each in files if not (site / each.relative_to(ROOT)).exists()]
        assert files
        assert not missing, "pages, digests and marks of types are read by what runs"
    # The libraries as they are, without what makes this checkout importable (-S).
    paths = [str(site), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    script = f"import sys; sys.path[:0] = {paths}; from binlane.__main__ import main; main()"
    home = tmp_path / "home"
    home.mkdir()
    (home / "handlers.py").write_text(MIRROR.format(face="binlane"))
    for name in ("worker", "offsets"):
        (home / f"{name}.py").write_text(FOREIGN)
    done = check(home, type="handlers:Mirror", python_path=home, command=[sys.executable, "-S", "-c", script])
    assert (done.returncode, done.stderr) == (0, "")
    script = f"import sys; sys.path[:0] = {paths}; import binlane, worker; print(worker)"
    found = subprocess.check_output([sys.executable, "-S", "-c", script], text=True, cwd=home)
    assert str(site) in found
