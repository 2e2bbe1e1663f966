"""`python tests/mutations [WORD ...]` tries the mutations with these words in their names, by default all.

`--write SUBJECT/NAME` takes the defect that is in the working tree into its patch, keeping the patch's head.
"""

from __future__ import annotations

import subprocess
import sys

from patching import PACKAGES, PROJECT, Mutation, mutations
from trying import Trials

_AT_A_TIME = 2
_NEW_HEAD = "WHAT IS WRONG, in one sentence.\nCaught by: tests/FILE.py::TEST\n"


def main(words: list[str]) -> int:
    if words[:1] == ["--write"]:
        return _write(words[1])
    chosen = [each for each in mutations() if not words or any(word in each.name for word in words)]
    width = max((len(each.name) for each in chosen), default=0)
    wrong = []
    total = 0.0
    with Trials(_AT_A_TIME) as trials:
        trials.begin(chosen)
        for mutation in chosen:
            fault, run = trials.run(mutation)
            seconds = 0.0 if run is None else run.seconds
            total += seconds
            result = "NOT CAUGHT" if fault else ", ".join(mutation.caught_by)
            print(f"{mutation.name:{width}}  {seconds:5.1f}  {result}", flush=True)
            wrong += [fault] if fault else []
    print(f"{len(chosen) - len(wrong)} of {len(chosen)} mutations caught, {total:.0f} s in all")
    print(*wrong, sep="\n\n")
    return 1 if wrong else 0


def _write(name: str) -> int:
    command = ["git", "diff", "--unified=1", "--no-color", "--no-ext-diff", "--", *PACKAGES]
    diff = subprocess.run(command, cwd=PROJECT, text=True, capture_output=True, check=True).stdout
    kept = [line for line in diff.splitlines(keepends=True) if not line.startswith(("diff ", "index "))]
    if not kept:
        print(f"nothing is changed in {', '.join(PACKAGES)}: bring the defect back there first")
        return 1
    mutation = Mutation(name, "")
    if mutation.file.exists():
        mutation = Mutation(name, mutation.file.read_text("utf-8"))
    head = mutation.head.rstrip("\n") + "\n" if mutation.head else _NEW_HEAD
    mutation.file.write_text(head + "".join(kept), "utf-8")
    print(f"written: {mutation.file}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
