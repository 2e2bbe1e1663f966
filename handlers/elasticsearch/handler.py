"""The `elasticsearch` handler: a document for each row, under a version of the source's order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import msgspec
from structlog.stdlib import BoundLogger

from handlers.api import Batch, Change, Handler, HandlerContext, Rejected, TargetUnavailable
from handlers.decimals import BeyondBounds
from handlers.elasticsearch.bulk import Item, write
from handlers.elasticsearch.client import SearchClient, told
from handlers.elasticsearch.documents import Document, Documents, checked_id, document_of
from handlers.elasticsearch.emptying import empty
from handlers.elasticsearch.indexes import Index, Indexes, IndexUnfit
from handlers.elasticsearch.mapping import ORIGIN, fields_of
from handlers.elasticsearch.options import ElasticsearchOptions
from handlers.elasticsearch.rights import check_cluster
from handlers.http.parts import RowRefused
from handlers.logs import get_logger
from handlers.mysql.ddl import TableName
from handlers.mysql.emptying import WholeTables
from handlers.options.templates import place_of
from handlers.progress.last_states import State, last_states, partition_of
from handlers.progress.late_rows import Held, check_late
from handlers.progress.memory import remembering, until_remembered
from handlers.progress.new_columns import new_columns
from handlers.progress.passing_over import PassingOver
from handlers.progress.versions import BeyondVersions, Topic, versions_of

__all__ = ["ElasticsearchHandler"]

log = get_logger("handlers.elasticsearch")

_READ_AT_FIRST, _READ_AT_ONCE = 100, 1_000


class ElasticsearchHandler(Handler):
    """Writing a batch twice is the same as once: the cluster refuses a version that is not higher."""

    options_model: ClassVar[type[ElasticsearchOptions]] = ElasticsearchOptions

    def __init__(self, **options: Any) -> None:
        self._options = ElasticsearchOptions.model_validate(options)
        self._client: SearchClient | None = None
        self._indexes: Indexes | None = None
        self._passing_over: PassingOver | None = None
        self._log = log
        self._whole_tables = self._telling(log, lambda _: True)

    def open(self, context: HandlerContext) -> None:
        """Connects when it is first needed: a cluster that is down then keeps no worker from starting.

        Raises OSError for a certificate that cannot be read.
        """
        self._client = SearchClient(self._options, context.folder, context.lanes)
        self._indexes = Indexes(self._client, self._options)
        self._passing_over = PassingOver(context, log)
        self._log = log.bind(handler=context.handler)
        self._whole_tables = self._telling(self._log, context.handles or (lambda _: True))

    def handle(self, batch: Batch) -> None:
        """Raises Rejected, TargetUnavailable, FormerTopic, IndexUnfit, RowMoved, RefusedByCluster."""
        for change in batch.changes:
            for table in self._whole_tables.to_empty(change, batch):
                self._empty(table, change, batch)
        if all(change.op in ("ddl", "truncate") for change in batch.changes):
            return
        _, indexes = self._opened()

        def looked_at() -> tuple[Index, Callable[[Change], int]]:
            index = indexes.find_or_make(batch.database, batch.name)
            return index, self._versions(index, batch, batch.table)

        index, versions = until_remembered(looked_at)
        states = last_states(batch, versions, checked_id)
        self._map(index, batch, states)
        self._write(index, batch, states)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
        self._client = self._indexes = None

    def check(self, context: HandlerContext) -> None:
        """Which cluster it is, and what may be done there. Raises ClusterUnfit, TargetUnavailable,
        RefusedByCluster, and OSError for a certificate that cannot be read."""
        client = SearchClient(self._options, context.folder, 1)
        try:
            check_cluster(client, self._options)
        finally:
            client.close()

    def _opened(self) -> tuple[SearchClient, Indexes]:
        if self._client is None or self._indexes is None:
            raise RuntimeError("handle was called before open")
        return self._client, self._indexes

    # ---- versions

    def _versions(self, index: Index, batch: Batch, table: str) -> Callable[[Change], int]:
        """What gives each change of the batch its version; the index, which is the table's, remembers the
        batch's topics then. Raises LookAgain, and as `handle`."""
        epoch, known = self._options.epoch, index.memory
        found = versions_of(batch, known.topics, base=epoch, again=self._options.topic_again)
        if batch.replay_of is not None:
            return found.of
        self._opened()[1].remember(index, remembering(known, table=table, topics=found.topics, epoch=epoch))
        if self._passing_over is not None:
            self._passing_over.made_anew(table, found.made_anew)
        return found.of

    # ---- rows

    def _map(self, index: Index, batch: Batch, states: dict[str, State]) -> None:
        """Add the fields that the index lacks."""
        lacking = fields_of(new_columns(states.values(), index.fields))
        if lacking:
            self._opened()[1].add(index, lacking)

    def _write(self, index: Index, batch: Batch, states: dict[str, State]) -> None:
        client, _ = self._opened()
        late: list[Item] = []
        for piece, held in self._with_held(index, states):
            items: list[Item] = []
            for key, state in piece.items():
                try:
                    document = None if state.row is None else document_of(state, held.get(key, {}))
                except (TypeError, BeyondBounds, UnicodeEncodeError) as error:
                    place = place_of(batch.changes[state.at], batch.table)
                    raise Rejected(f"{place}: {error}", at=state.blamed) from None
                items.append(Item(id=key, version=state.version, at=state.at, document=document))
            try:
                late += write(client, index.path, items, self._options.max_bytes)
            except RowRefused as error:
                place = place_of(batch.changes[error.at], batch.table)
                raise Rejected(
                    f"{place}: {index.name} refuses its document: {error}. Where the source's column has "
                    f"another type now: no field changes its type, so make an index with the new one, copy "
                    f"the documents (_reindex with version_type: external), and lead this table there "
                    f"(option index)",
                    at=next(state.blamed for state in piece.values() if state.at == error.at),
                ) from None
        if late:
            self._look_at_late(index, batch, states, late)

    def _with_held(
        self, index: Index, states: dict[str, State]
    ) -> Iterator[tuple[dict[str, State], dict[str, Mapping[str, Any]]]]:
        """All states in pieces, each with what the index holds of those that are not whole: id -> the
        document as it is. No other batch of these rows runs meanwhile.

        What a row does not send is what is large in it, as a rule: documents are read by so many as make up
        one request.
        """
        if whole := {key: state for key, state in states.items() if state.whole}:
            yield whole, {}
        rest = [key for key, state in states.items() if not state.whole]
        start, count = 0, _READ_AT_FIRST
        while start < len(rest):
            keys = rest[start : start + count]
            found, size = self._documents(index, keys, "")
            if any(each.source is None for each in found):
                raise IndexUnfit(f"{index.name} keeps no _source: what an update does not send would be lost")
            yield {key: states[key] for key in keys}, {each.id: each.source or {} for each in found}
            start += count
            count = max(1, min(_READ_AT_ONCE, len(keys) * self._options.max_bytes // max(size, 1)))

    def _documents(self, index: Index, keys: Sequence[str], query: str) -> tuple[list[Document], int]:
        """Those that there are, and the bytes of the answer."""
        client, _ = self._opened()
        path = f"{index.path}/_mget{query}"
        answer = client.request("POST", path, {"ids": list(keys)}, form=Documents)
        for each in answer.body.docs:
            if each.error is not None:
                # Its shard is away: whether there is such a document nobody knows now.
                raise TargetUnavailable(f"_mget of {index.name}: {told(each.error)}")
        return [each for each in answer.body.docs if each.found], answer.size

    def _look_at_late(
        self, index: Index, batch: Batch, states: dict[str, State], late: Sequence[Item]
    ) -> None:
        """See `check_late`. Raises RowMoved."""
        ids = [item.id for item in late]

        def topics() -> Sequence[Topic] | None:
            now = self._opened()[1].find(batch.database, batch.name)
            return None if now is None else now.memory.topics

        for start in range(0, len(ids), _READ_AT_ONCE):
            some = ids[start : start + _READ_AT_ONCE]
            for document in self._documents(index, some, f"?_source_includes={ORIGIN}")[0]:
                origin = msgspec.json.decode((document.source or {}).get(ORIGIN, b"null")) or {}
                name = f"the document {document.id} of {index.name}"
                held = Held(name, document.version, origin.get("partition"))
                check_late(batch, states[document.id], held, base=self._options.epoch, topics=topics)
        if self._passing_over is not None:
            self._passing_over.passed_over(batch.table, len(late))

    # ---- whole tables

    def _telling(self, log: BoundLogger, handles: Callable[[str], bool]) -> WholeTables:
        renamed = "documents of a renamed table stay in its index"
        return WholeTables(self._options.truncate, self._options.drop_tables, renamed, handles, log)

    # ---- whole tables

    def _empty(self, named: TableName, change: Change, batch: Batch) -> None:
        client, indexes = self._opened()
        table = str(named)

        def looked_at() -> tuple[Index, int] | None:
            index = indexes.find(*named)
            if index is None or ORIGIN not in index.fields:
                return None
            return index, self._versions(index, batch, table)(change)

        try:
            found = until_remembered(looked_at)
        except BeyondVersions as error:
            raise Rejected(f"{place_of(change, batch.table)}: {error}") from None
        if found is None:
            return
        index, version = found
        removed = empty(
            client,
            index,
            version=version,
            partition=partition_of(batch, change),
            time=change.source_time_ms,
            most_bytes=self._options.max_bytes,
        )
        self._log.info("documents_removed", table=table, index=index.name, documents=removed)
