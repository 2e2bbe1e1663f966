"""Tables whose workers are killed, stopped or refused at one storage operation, and what must be in them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import obstore
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from pyiceberg.catalog import load_catalog
from servers.s3_server import S3Server
from shifts import Shifts
from told_changes import BATCHES, STATES, known

import binlane

__all__ = ["PHASES", "Place", "Steps", "in_a_bucket"]

Steps = Sequence[Sequence[Any]]
_MERGE: Steps = [["merge"], ["tidy"]]
PHASES: Sequence[Steps] = [
    [["take", 0], ["take", 1], *_MERGE],
    [["take", 2], ["take", 3], ["take", 4], *_MERGE],
    [["take", 5], ["take", 6], ["take", 7], *_MERGE, ["upkeep", 3600.0]],
    [["take", 8], ["take", 9], *_MERGE],
]
"""What a worker does. Each continues where the one before has ended."""
_STATEMENTS = {3, 6, 8}


@dataclass
class Place:
    """The table of one mode, in a folder of its own."""

    shifts: Shifts
    folder: Path
    mode: str
    format: str = "delta"
    spark: Mapping[str, Any] = field(default_factory=dict)
    """What its section has beside the catalog."""
    environment: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    batches: int = 10
    """How many of those there are. The last ones drop the table, and make it again."""

    @property
    def lake(self) -> str:
        return str(self.spark.get("warehouse", self.folder / "lake"))

    def begin(self, steps: Steps, **more: Any) -> tuple[int, str]:
        """See Shifts. Statements are left out if only Spark follows them."""
        self.folder.mkdir(exist_ok=True, parents=True)
        Path(f"{self.folder}.trace").unlink(missing_ok=True)
        merge = {"max_age": "1h", "at_close": "0s", "keep": "0s"}
        spark: dict[str, Any] = {"warehouse": "lake", **self.spark}
        if self.format == "iceberg":
            spark["iceberg"] = {"type": "sql", "uri": "sqlite:///catalog.db", **spark.get("iceberg", {})}
        return self.shifts.begin(
            self.folder,
            self._without_statements(steps),
            options={"mode": self.mode, "format": self.format, "merge": merge, **self.options},
            spark=spark,
            environment=self.environment,
            is_wide=self.lacks_statements,
            **more,
        )

    def run(self, steps: Steps, **more: Any) -> None:
        """A worker that nobody disturbs."""
        _, ended = self.begin(steps, **more)
        assert ended == "0", self.told

    def until(self, phase: int) -> Path:
        """A copy of the folder as the phases before have left it."""
        for steps in PHASES[:phase]:
            self.run(steps)
        return self.copy()

    def copy(self) -> Path:
        """A copy of the folder."""
        copy = self.folder.with_name(f"{self.folder.name}-copy")
        self.folder.mkdir(exist_ok=True)
        shutil.copytree(self.folder, copy)
        if (done := Path(f"{self.folder}.done")).exists():
            shutil.copy2(done, f"{copy}.done")
        return copy

    def places_of(self, operation: str, steps: Steps) -> Sequence[int]:
        """The numbers of those operations of a worker that begin so, if nobody disturbs it."""
        self.run(steps, reads=True)
        lines = Path(f"{self.folder}.trace").read_text().splitlines()
        return [at for at, line in enumerate(lines, 1) if line.startswith(f"{at} {operation}")]

    def _without_statements(self, steps: Steps) -> list[Sequence[Any]]:
        if not self.lacks_statements:
            return list(steps)
        kept = [[each for each in step if step[0] != "take" or each not in _STATEMENTS] for step in steps]
        return [step for step in kept if step != ["take"]]

    @property
    def lacks_statements(self) -> bool:
        return self.format == "delta" and self.mode != "replica"

    @property
    def told(self) -> str:
        """The error of the last worker."""
        file = Path(f"{self.folder}.told")
        return file.read_text() if file.exists() else ""

    @property
    def last_operation(self) -> str:
        file = Path(f"{self.folder}.trace")
        return (file.read_text().splitlines() or ["-"])[-1] if file.exists() else "-"

    @property
    def acknowledged(self) -> int:
        """The last batch that a worker has finished. -1: none."""
        file = Path(f"{self.folder}.done")
        return max(map(int, file.read_text().split())) if file.exists() else -1

    # ---- what is in it

    @property
    def states(self) -> Sequence[Sequence[str]]:
        found = STATES["wide" if self.lacks_statements else self.mode][
            : sum(map(len, BATCHES[: self.batches])) + 1
        ]
        if not self.lacks_statements:
            return found
        return [[row for row in each if "('sql'" not in row] for each in found]

    def table(self) -> tuple[int, int]:
        """After how many changes the table, as others read it, is as it is: at least, and at most."""
        return self._told_by(self.table_rows(), "the table")

    def view(self) -> tuple[int, int]:
        """The same, with what waits."""
        if self.format == "iceberg":
            return self.table()
        try:
            rows = binlane.read(f"{self.lake}/shop/orders").to_pylist()
        except LookupError:
            rows = []
        return self._told_by(rows, "the view")

    def table_rows(self) -> list[dict[str, Any]]:
        if self.format == "iceberg":
            catalog = self.catalog()
            name = "shop.orders"
            found = catalog.load_table(name).scan().to_arrow() if catalog.table_exists(name) else None
            return [] if found is None else found.to_pylist()
        at = f"{self.lake}/shop/orders"
        options = {**self.environment, "AWS_ALLOW_HTTP": "true"} if self.environment else None
        try:
            rows: list[dict[str, Any]] = (
                DeltaTable(at, storage_options=options).to_pyarrow_table().to_pylist()
            )
        except TableNotFoundError:
            return []
        return rows

    def catalog(self) -> Any:
        given = {"type": "sql", "uri": f"sqlite:///{self.folder}/catalog.db"}
        own = {"warehouse": f"{self.folder}/lake/iceberg", **self.spark.get("iceberg", {})}
        return load_catalog("default", **{**given, **own})

    def _told_by(self, rows: list[dict[str, Any]], what: str) -> tuple[int, int]:
        found = known(rows, "cdc_" if self.format == "iceberg" else "_")
        places = [at for at, state in enumerate(self.states) if list(state) == found]
        assert places, f"{what} was never so: {found}"
        return places[0], places[-1]

    def check_between(self) -> None:
        """What readers see while a worker is away, or is stopped: what was finished, unless it comes after a
        statement that waits."""
        table, view = self.table(), self.view()
        assert table[0] <= view[1], f"the view is behind the table: {view} {table}"
        finished = sum(map(len, BATCHES[: self.acknowledged + 1]))
        until = finished
        if self.format == "delta" and not self.lacks_statements:
            until = next((end for end in _ends(_STATEMENTS) if table[0] <= end < finished), finished)
        if self.format == "delta":
            assert view[1] >= until, f"the view {view} lacks what was finished, up to {until}"

    def check_end(self) -> None:
        """All changes are in it, once."""
        end = len(self.states) - 1
        assert end in range(self.table()[0], self.table()[1] + 1), f"only {self.table()} of {end} changes"
        assert end in range(self.view()[0], self.view()[1] + 1), f"only {self.view()} of {end} changes"

    def copied(self, folder: Path) -> None:
        """A former state of the folder, with what workers have told, in place of this one."""
        self.forget()
        shutil.copytree(folder, self.folder)
        if (done := Path(f"{folder}.done")).exists():
            shutil.copy2(done, f"{self.folder}.done")

    def forget(self) -> None:
        """As before the first worker, apart from a bucket."""
        for kind in (".done", ".told"):
            Path(f"{self.folder}{kind}").unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)


def in_a_bucket(
    make_place: Callable[..., Place], s3: S3Server, mode: str, format_: str, base: Path | None, **more: Any
) -> Place:
    """A new place in a bucket. Iceberg tables have their worker's first phase. Delta tables are a copy of
    `base`, a lake in a folder: with Connect, Spark makes the tables. No server is needed after that, because
    binlane makes all commits."""
    bucket = s3.new_bucket()
    spark: dict[str, Any] = {
        "remote": "sc://127.0.0.1:1",
        "warehouse": f"s3a://{bucket}/lake",
        "single_writer": True,
    }
    if format_ == "iceberg":
        endpoint = {"s3.endpoint": s3.environment["AWS_ENDPOINT_URL"]}
        spark = {"warehouse": f"s3://{bucket}/lake"}
        spark["iceberg"] = {"warehouse": f"s3://{bucket}/tables", **endpoint}
    place = make_place(mode, format_, spark=spark, environment=s3.environment, **more)
    if base is None:
        place.forget()
        place.run(PHASES[0])
        return place
    place.copied(base)
    for file in filter(Path.is_file, (base / "lake").rglob("*")):
        obstore.put(s3.client(bucket), str(file.relative_to(base)), file.read_bytes())
    return place


def _ends(batches: set[int]) -> Iterator[int]:
    """After how many changes the first of these batches begins, and so on."""
    for number in sorted(batches):
        yield sum(map(len, BATCHES[:number]))
