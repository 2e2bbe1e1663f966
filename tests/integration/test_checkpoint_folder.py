"""What a worker leaves in its checkpoint folder is for its own user alone."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from integration.conftest import MakeStage
from integration.process import eventually
from integration.test_paused_tables import ask, handled


def test_no_other_account_can_read_a_file_of_the_checkpoint_folder(make_stage: MakeStage) -> None:
    """Of all kinds: checkpoint and its copy, lock, map, journal, pauses, parked records, token."""
    before = os.umask(0o022)
    try:
        stage = make_stage()
        source = stage.source()
        worker = stage.worker(
            tables=[{"match": "*", "handlers": [stage.recording()]}],
            lanes={"count": 2, "max_records": 200},
        ).start()
    finally:
        os.umask(before)
    assert ask(worker, "pause", "--table", "shop.t0").returncode == 0
    for table in ("t0", "t1"):
        source.insert(table, records=1_000)
    source.flush()
    eventually(lambda: handled(stage, "shop.t1") == 1_000, what="the other table is handled")
    eventually(lambda: worker.metric("binlane_parked_records") >= 500, what="records are parked")
    folder = Path(worker.config["checkpoint"]["directory"])
    kinds = {"checkpoint.json", "finished-", "journal", "order-token-", "parked-", "paused-"}

    modes: dict[str, int] = {}

    def found() -> set[str]:
        for path in folder.rglob("*"):
            with contextlib.suppress(FileNotFoundError):  # one that has its final name by now
                if path.is_file():
                    modes[str(path.relative_to(folder))] = stat.S_IMODE(path.stat().st_mode)
        return {kind for kind in kinds if any(name.startswith(kind) for name in modes)}

    eventually(lambda: found() == kinds, what="each kind is there")
    assert {name: oct(mode) for name, mode in modes.items() if mode != 0o600} == {}
    assert ask(worker, "resume", "--table", "shop.t0").returncode == 0
    stage.wait_committed_to_the_end()
    assert worker.sigterm() == 0
