"""The patches fit the code of today, their tests are there, and nothing but the defect makes those fail."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from forked_pytest import ForkedPytest
from mutant import environment, make_copy, mutant, run_tests, verdict
from named_tests import missing
from patching import PACKAGES, PROJECT, Mutation, StalePatch, apply, fitting, mutations

TEST = "tests/offsets/test_tracker.py::test_the_committed_offset_is_the_next_one_to_read"
FIRST_LINE = (PROJECT / "offsets" / "types.py").read_text("utf-8").partition("\n")[0]
DEFECT = Mutation(
    "core/made-up",
    f"""The offset itself is committed.
Caught by: {TEST}
--- a/offsets/types.py
+++ b/offsets/types.py
@@ -1,2 +1,3 @@
 {FIRST_LINE}
+# There is nothing wrong here.
{" "}
""",
)


def test_every_patch_fits_says_what_is_wrong_and_names_tests_that_are_there() -> None:
    stale, wrong = [], []
    for each in mutations():
        tests = " ".join(f"`{test.removeprefix('tests/')}`".replace("[", "`[") for test in each.caught_by)
        if not each.caught_by or not re.match(r"[A-Z`].*\.$", each.sentence) or missing(tests):
            wrong.append(f"{each.name}: {each.head}")
        try:
            fitting(each, PROJECT)
        except StalePatch as fault:
            stale.append(str(fault))
    assert not stale, "\n\n".join(stale)
    assert not wrong
    assert sum(not each.soak for each in mutations()) >= 36


@pytest.mark.parametrize(
    "name",
    ["offsets/commit-past-a-gap", "offsets/pause-flag-outlives-its-assignment", "offsets/no-final-commit"],
)
def test_without_its_patch_the_tests_of_a_mutation_pass(
    name: str, copy: Path, forked_pytest: ForkedPytest
) -> None:
    (mutation,) = (each for each in mutations() if each.name == name)
    make_copy(copy)
    run = run_tests(mutation.caught_by, copy, forked_pytest)
    assert (run.code, run.strangers) == (0, []), run.output
    assert verdict(mutation, run)


def test_a_patch_that_brings_no_defect_is_told_as_not_caught(copy: Path, forked_pytest: ForkedPytest) -> None:
    mutant(DEFECT, copy)
    told = verdict(DEFECT, run_tests(DEFECT.caught_by, copy, forked_pytest))
    assert told.startswith("core/made-up: The offset itself is committed.\nis not caught by")


def test_a_patch_that_breaks_the_code_is_told_as_not_caught(copy: Path, forked_pytest: ForkedPytest) -> None:
    broken = replace(DEFECT, text=DEFECT.text.replace("+# ", "+"))
    mutant(broken, copy)
    assert "SyntaxError" in verdict(broken, run_tests(broken.caught_by, copy, forked_pytest))


def test_a_patch_that_does_not_fit_says_how_to_renew_it() -> None:
    other = replace(DEFECT, text=DEFECT.text.replace(FIRST_LINE, "Something else."))
    with pytest.raises(StalePatch, match="python tests/mutations --write core/made-up"):
        fitting(other, PROJECT)


def test_a_patch_follows_its_lines_into_another_file(copy: Path) -> None:
    make_copy(copy)
    (copy / "offsets" / "types.py").rename(copy / "offsets" / "kinds.py")
    assert "--- a/offsets/kinds.py\n+++ b/offsets/kinds.py" in fitting(DEFECT, copy)[0]


def test_a_patch_fits_though_what_surrounds_it_has_changed_where_its_lines_are_the_only_ones(
    copy: Path,
) -> None:
    (mutation,) = (each for each in mutations() if each.name == "offsets/commit-past-a-gap")
    make_copy(copy)
    file = copy / "offsets" / "tracker.py"
    code = file.read_text()
    file.unlink()
    line = "        if ahead and ahead[0].first <= position:\n"
    before, after = code.split(line)
    file.write_text(f"{before}        # a word\n{line}        # another\n{after}")
    mutant_code = file.read_text().replace(line, "        if ahead:\n")
    assert apply(mutation, copy) == [file]
    assert file.read_text() == mutant_code
    file.write_text(f"{before}        # a word\n{line}        # another\n{line}{after}")
    with pytest.raises(StalePatch):
        apply(mutation, copy)


def test_processes_that_tests_start_import_the_copy(copy: Path) -> None:
    make_copy(copy)
    script = f"import {', '.join(PACKAGES)}; print({', '.join(f'{name}.__file__' for name in PACKAGES)})"
    command = [sys.executable, "-c", script]
    told = subprocess.run(command, env=environment(copy), cwd="/", capture_output=True, text=True, check=True)
    assert [Path(file).parents[1] for file in told.stdout.split()] == [copy] * len(PACKAGES)
    main = copy / "binlane" / "__main__.py"
    main.unlink()  # else it is written to the code itself
    main.write_text("def main(): raise SystemExit(77)")
    command = [str(Path(sys.executable).with_name("binlane"))]
    assert subprocess.run(command, env=environment(copy), cwd="/", check=False).returncode == 77
