"""A configuration whose lake is made by hand, and the commands that look at it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from spark_sessions import SHARED
from view_lab import HandMade

from handlers.options.matching import table_matcher
from handlers.spark.rows.shape import Shape
from handlers.spark.table_ref import path_safe
from worker.cli import main
from worker.configuration import load
from worker.verifying.run import Report, compare

__all__ = ["Stage", "url"]


def url(database: sa.Connection | sa.Engine) -> str:
    return database.engine.url.render_as_string(hide_password=False)


class Stage:
    """`shop.*` goes to replicas in `folder/lake`."""

    def __init__(self, folder: Path, spark: Any) -> None:
        self.folder = folder
        self.spark = spark
        self.config = folder / "binlane.yaml"
        self.configure([{"match": "shop.*", "handlers": [{"type": "spark", "mode": "replica"}]}])

    def configure(self, tables: Sequence[Mapping[str, Any]]) -> None:
        kafka = {"bootstrap_servers": "localhost:1", "group_id": "looking", "topics": ["cdc"]}
        written = {"kafka": kafka, "http": None, "tables": tables, "spark": SHARED}
        self.config.write_text(json.dumps(written))

    def table(self, name: str = "orders", mode: Any = "replica") -> HandMade:
        table = HandMade(self.spark, self.folder / "lake", table=f"shop/{path_safe(name)}", mode=mode)
        table.owner["table"] = name
        return table

    def replicate(self, name: str, of: Shape, *rows: Mapping[str, Any]) -> HandMade:
        """A replica that has these rows waiting, and no Delta table."""
        table = self.table(name)
        table.put(*({"op": "upsert", **row} for row in rows), of=of)
        return table

    def run(self, command: str, *arguments: str) -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        out, err = StringIO(), StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.setattr(sys, "argv", ["binlane", command, str(self.config), *arguments])
            with pytest.raises(SystemExit) as ending:
                main()
        assert isinstance(ending.value.code, int)
        return ending.value.code, out.getvalue(), err.getvalue()

    def verify(self, url: str, *arguments: str) -> tuple[int, dict[str, Any]]:
        code, out, err = self.run("verify", "--against", url, "--settle", "0s", "--json", *arguments)
        assert not err, err
        return code, json.loads(out)

    def compare(
        self, url: str, sleep: Callable[[float], None], settle: float = 60.0, **options: Any
    ) -> Report:
        return compare(
            load(self.config),
            sa.make_url(url),
            table_matcher("shop.*"),
            settle=settle,
            sleep=sleep,
            **options,
        )
