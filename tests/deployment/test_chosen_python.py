"""Which Python `make` takes."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

SETUP = Path(__file__).parents[2] / "tools" / "setup.sh"
PRETENDING = """\
import sys, sysconfig
sys.base_prefix = "/opt/python"
options = {options!r}
told = sysconfig.get_config_var
sysconfig.get_config_var = lambda name: options if name == "CONFIG_ARGS" else told(name)
"""
SERVES = "import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))"


def serves(program: Path) -> bool:
    return program.exists() and not subprocess.run([program, "-c", SERVES], check=False).returncode


OF_DISTRIBUTION = any(serves(Path("/usr/bin", name)) for name in ("python3.13", "python3.12", "python3.11"))


def chosen(folder: Path, options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """With this as the first Python on PATH, compiled with these options."""
    (folder / "sitecustomize.py").write_text(PRETENDING.format(options=options))
    program = folder / "python3.13"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(folder))} exec {sys.executable} "$@"\n')
    program.chmod(0o755)
    return subprocess.run(
        ["sh", str(SETUP), "python"],
        check=True,
        capture_output=True,
        text=True,
        env={"PATH": f"{folder}:{os.environ['PATH']}", **environment},
    )


@pytest.mark.skipif(not OF_DISTRIBUTION, reason="there is no Python of the distribution")
def test_one_that_was_compiled_without_optimizations_gives_way_and_it_is_said(tmp_path: Path) -> None:
    done = chosen(tmp_path, "'--prefix=/opt/python'")
    assert done.stdout.startswith("/usr/bin/python3")
    assert "python3.13 was compiled without optimizations" in done.stderr
    assert "PYTHON=python3.13 takes it nevertheless" in done.stderr


def test_one_that_was_compiled_with_them_is_taken(tmp_path: Path) -> None:
    done = chosen(tmp_path, "'--prefix=/opt/python' '--enable-optimizations'")
    assert (done.stdout, done.stderr) == ("python3.13\n", "")


def test_one_that_was_named_is_taken(tmp_path: Path) -> None:
    done = chosen(tmp_path, "'--prefix=/opt/python'", PYTHON="python3.13")
    assert (done.stdout, done.stderr) == ("python3.13\n", "")
