"""The Delta tables, as a DDL statement sees and changes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from handlers.api import Rejected
from handlers.mysql.ddl import ANY_DATABASE, Column, TableName
from handlers.spark.ddl.progress import Place, Progress, Step, Surroundings, folder_of, noted, step_in
from handlers.spark.delta.commits.commit_notes import notes_in_files
from handlers.spark.delta.commits.exactly_once import STRICT, settings
from handlers.spark.delta.evolving import has_property, look_in_files, properties
from handlers.spark.delta.few_files import Rewrite
from handlers.spark.delta.log_files import has_commits
from handlers.spark.delta.own_commit import NextVersion, operation_of
from handlers.spark.delta.table_columns import ColumnChange
from handlers.spark.rows.column_types import column_type, spark_name
from handlers.spark.rows.shape import HISTORY
from handlers.spark.table_ref import TableRef, quoted

DELTA_LOG = "_delta_log"
_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_APP_ID = "spark.databricks.delta.write.txnAppId"
_VERSION = "spark.databricks.delta.write.txnVersion"


@dataclass(slots=True)
class Target:
    """One statement's view of the tables. Nothing about columns is cached: DDL has just changed them."""

    sessions: Callable[[], SparkSession]
    """Returns the session. Not called if the statement needs no Spark."""
    around: Surroundings
    places: Sequence[Place]
    """Where the statement is, and other places under which an earlier attempt may have recorded it."""
    time_ms: int
    """When the source executed the statement, milliseconds since 1970 in UTC."""
    note: str
    """The commits' user metadata: a JSON object whose member `binlane` is an object."""
    most_commits: int = 20
    """The most commits that the statement can have made in one table, with some of others."""
    fence: str = ""
    """Set if two workers may follow the statement at once. Delta uses this name to skip a step that changes
    rows if the other worker has committed it."""
    look_again: Callable[[], None] = lambda: None
    """With `fence`: called right before each commit, move and removal. Raises if another worker has followed
    the statement. Rows and statements after it may be in the table by then: repeating it would undo them."""
    keeps_dropped: bool = False
    """Whether columns that the source drops are kept."""
    kept: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Steps that an earlier attempt committed, as recorded when it failed."""
    committed: dict[str, Sequence[str]] = field(default_factory=dict)
    """Committed step, of any attempt -> the columns recorded with it."""
    done: list[str] = field(default_factory=list)
    """Every statement that was executed."""
    _steps: dict[str, dict[str, Sequence[str]]] = field(default_factory=dict)
    _set_before: dict[str, set[str]] = field(default_factory=dict)

    @property
    def is_history(self) -> bool:
        return self.around.options.mode == "history"

    @property
    def session(self) -> SparkSession:
        return self.sessions()

    # ---- names

    def named(self, name: TableName) -> TableName:
        """Return the table that a statement means. Raises Rejected if it is ambiguous."""
        if name.database != ANY_DATABASE:
            return name
        known = [TableName(one, name.table) for one in sorted(set(self.around.databases_of(name.table)))]
        found = [one for one in known if self.is_there(one)]
        if not found:  # a crash may have left it on its way to its new name
            found = [one for one in known if self._has_begun(one)]
        if len(found) > 1:
            listed = ", ".join(map(str, found))
            raise Rejected(f"the statement does not name the database of {name.table}: {listed}")
        return found[0] if found else name

    def _has_begun(self, name: TableName) -> bool:
        """Whether an earlier attempt has recorded a step that drops or renames this table."""
        folders = [folder_of(f"{self.around.root}/ddl", place, name) for place in self.places]
        entries = (entry for folder in folders for entry in self.around.files.list(folder))
        return any(entry.name.endswith(".begun") for entry in entries)

    def keeps(self, name: TableName) -> bool:
        """Whether the handler has a log of this source table."""
        return name.database in self.around.databases_of(name.table)

    def is_there(self, name: TableName) -> bool:
        """Whether the table exists. If its first rows still wait, this merges them."""
        if not self.exists(self.ref(name)) and self.keeps(name):
            self.around.settle(name)
        return self.exists(self.ref(name))

    def ref(self, name: TableName) -> TableRef:
        return self.around.ref_of(name)

    def added(self, name: str) -> str:
        """The name of a column that binlane adds."""
        return f"{self.around.options.prefix}{name}"

    def current(self) -> str:
        """The WHERE clause for the rows that exist in the source now. Empty if all do."""
        return f" WHERE {quoted(self.added('current'))}" if self.is_history else ""

    def type_of(self, column: Column) -> str:
        """Return a column's type in Spark's spelling."""
        arrow = self.around.overrides.get(column.name.lower())
        return spark_name(column_type(column.type).arrow if arrow is None else arrow)

    def progress(self, table: TableName, step: str, what: str) -> Progress:
        """Return the record of a step that no commit records. `what`: its effect."""
        return Progress(self.around, self.places, table, step, what)

    # ---- reading

    def exists(self, ref: TableRef) -> bool:
        """Whether the table exists. A Delta log without a commit, from a failed attempt, does not count."""
        if ref.path is not None:
            return has_commits(self.around.files, ref.path)
        return self.session.catalog.tableExists(ref.sql)

    def columns(self, ref: TableRef) -> dict[str, str]:
        """Column -> type in Spark's spelling, in the table's order."""
        found = look_in_files(self.around.files, ref.path)
        columns = self.session.table(ref.sql).schema if found is None else found.columns
        return {one.name: one.dataType.simpleString() for one in columns.fields}

    def properties(self, ref: TableRef) -> Mapping[str, str]:
        found = look_in_files(self.around.files, ref.path)
        return properties(self.session, ref) if found is None else found.properties

    def source_columns(self, ref: TableRef) -> dict[str, str]:
        """The columns without those that binlane adds."""
        added = {self.added(name) for name in HISTORY} if self.is_history else set()
        return {name: type_ for name, type_ in self.columns(ref).items() if name not in added}

    def detail(self, ref: TableRef) -> Any:
        """The row of DESCRIBE DETAIL."""
        return self.session.sql(f"DESCRIBE DETAIL {ref.sql}").collect()[0]

    def steps(self, ref: TableRef) -> dict[str, Sequence[str]]:
        """Step of this statement that an earlier attempt committed -> the columns recorded with it."""
        if ref.sql not in self._steps:
            steps = (step_in(note, self.places) for note in self._notes(ref))
            noted = {step.step: step.columns for step in steps if step is not None}
            self._steps[ref.sql] = {**self.kept, **noted}
            self.committed |= self._steps[ref.sql]
        return self._steps[ref.sql]

    def _notes(self, ref: TableRef) -> Iterable[str | None]:
        """The user metadata of the newest commits: others may have committed since an earlier attempt."""
        if ref.path is not None:
            notes = notes_in_files(self.around.files, ref.path, self.most_commits)
            if notes is not None:
                return notes
        history = f"DESCRIBE HISTORY {ref.sql} LIMIT {10 * self.most_commits}"
        return [row.userMetadata for row in self.session.sql(history).collect()]

    # ---- changing

    def run(self, ref: TableRef, step: str, sql: str, columns: Sequence[str] = ()) -> None:
        """Execute a statement that makes one commit, unless an earlier attempt did."""
        self.commit(ref, step, lambda: self.session.sql(sql), columns, told=sql)

    def alter(
        self,
        ref: TableRef,
        step: str,
        sql: str,
        change: Callable[[ColumnChange], None],
        columns: Sequence[str] = (),
    ) -> None:
        """The same for columns and properties: by `change`, or by `sql` if Spark must do it."""

        def own(table: NextVersion, note: str) -> bool:
            return table.alter(operation_of(sql), change, note)

        self.commit(ref, step, lambda: self.session.sql(sql), columns, told=sql, own=own)

    def rewrite(
        self, ref: TableRef, step: str, sql: str, rows: Callable[[NextVersion], Rewrite | None]
    ) -> None:
        """The same for rows: by the files that `rows` replaces, or by `sql` if Spark must do it."""
        txn = (f"{self.fence}/{step}", 1) if self.fence else None

        def own(table: NextVersion, note: str) -> bool:
            if txn is not None and table.base is not None and txn[0] in table.base.writers:
                return True  # Delta would skip the statement, too
            made = rows(table)
            if made is not None:
                table.put(operation_of(sql), {}, note=note, txn=txn, rows=made)
            return made is not None

        self.commit(ref, step, lambda: self.session.sql(sql), told=sql, own=own)

    def commit(
        self,
        ref: TableRef,
        step: str,
        do: Callable[[], object],
        columns: Sequence[str] = (),
        *,
        told: str,
        own: Callable[[NextVersion, str], bool] | None = None,
    ) -> None:
        """Execute `do`, which makes one commit, unless an earlier attempt did. `told`: its description.
        `own`: commits without Spark, with the note. It returns False if Spark must do it."""
        if step in self.steps(ref):
            return
        # Before the check: this version cannot be committed after another worker's.
        table = None if own is None else self.around.next_version(ref)
        if not self._is_done_elsewhere(ref, step):
            self.noted(ref, step, columns, do, lambda note: bool(table and own and own(table, note)))
            self.done.append(told)

    def _is_done_elsewhere(self, ref: TableRef, step: str) -> bool:
        """Check again right before a commit: Delta skips a repeated step only if it changes rows.

        Read the notes first: a worker whose later commits hide them has recorded the statement as
        followed."""
        if not self.fence:
            return False
        self._steps.pop(ref.sql, None)
        if step in self.steps(ref):
            return True
        self.look_again()
        return False

    def make(
        self, ref: TableRef, step: str, sql: str, columns: Mapping[str, str], properties: Mapping[str, str]
    ) -> None:
        """Execute a statement that creates the table. `columns`: with their types in Spark's spelling."""

        def by_spark() -> None:
            self.look_again()
            self.session.sql(sql)

        self.forget(ref)
        self._steps[ref.sql] = {}
        self.noted(
            ref,
            step,
            (),
            by_spark,
            lambda note: self.around.create(ref, columns, properties, note, self.look_again),
        )
        self.done.append(sql)

    def noted(
        self,
        ref: TableRef,
        step: str,
        columns: Sequence[str],
        commit: Callable[[], object],
        own: Callable[[str], bool],
    ) -> None:
        """Commit with a note of the step: by `own`, which gets it, or by `commit` if Spark must do it."""
        note = noted(self.note, Step(self.places[0], step, tuple(columns)))
        if not own(note):
            confs = {**STRICT, _USER_METADATA: note}
            if self.fence:
                confs |= {_APP_ID: f"{self.fence}/{step}", _VERSION: "1"}
            with settings(self.session, confs):
                commit()
        self._steps.setdefault(ref.sql, {})[step] = columns
        self.committed[step] = columns

    def forget(self, ref: TableRef) -> None:
        """Forget what is known, because another table has this name now."""
        self._steps.pop(ref.sql, None)
        self._set_before.pop(ref.sql, None)

    def allow(self, ref: TableRef, key: str, value: str) -> None:
        """Set a property, unless the table has it: NAMES_MAPPED lets columns be renamed and dropped,
        TYPES_WIDENED lets them be widened without a rewrite."""
        if key in self._set_before.get(ref.sql, ()):
            return
        self._set_before.setdefault(ref.sql, set()).add(key)
        if not has_property(self.properties(ref), key, value):
            sql = f"ALTER TABLE {ref.sql} SET TBLPROPERTIES ('{key}' = '{value}')"
            self.alter(ref, f"set {key}", sql, lambda change: change.set(key, value))
