"""Makes tests/data/canal-packets.jsonl.gz of tests/data/canal-flat.jsonl.gz, with Canal's own classes.

    python tests/data/canal_packets/make.py FOLDER

FOLDER has the jars of com.alibaba.otter:connector.core and what it needs (it was made with 1.1.7). Flat
messages of one `id` are what Canal read at once, and become one packet: their entries between the marks of a
transaction, written by CanalMessageSerializerUtil, as Canal's producer does it with flatMessage=false. An
entry's text goes through protobuf's TextFormat. What flat messages do not hold, no packet here does: a
column's length, its place, the columns before an update that stayed as they were are those after it.
"""

from __future__ import annotations

import base64
import gzip
import json
import sys
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from py4j.java_gateway import JavaGateway

DATA = Path(__file__).parents[1]
HEADER = 'version: 1 serverenCode: "UTF-8" sourceType: MYSQL serverId: 1 logfileName: "binlog.000001" '


def quoted(text: str) -> str:
    """As TextFormat reads it."""
    return '"' + "".join(f"\\{byte:03o}" for byte in text.encode()) + '"'


def column(name: str, value: str | None, flat: Mapping[str, Any], *, updated: bool) -> str:
    text = (
        f"sqlType: {flat['sqlType'][name]} name: {quoted(name)} mysqlType: {quoted(flat['mysqlType'][name])} "
    )
    text += f"isKey: {str(name in (flat['pkNames'] or ())).lower()} updated: {str(updated).lower()} "
    return (
        text
        + f"isNull: {str(value is None).lower()} "
        + (f"value: {quoted(value)} " if value is not None else "")
    )


def columns(field: str, row: Mapping[str, str | None], flat: Mapping[str, Any], updated: Any = ()) -> str:
    return "".join(
        f"{field} {{ {column(name, value, flat, updated=name in updated)} }} " for name, value in row.items()
    )


def row_change(flat: Mapping[str, Any]) -> str:
    text = f"eventType: {flat['type']} isDdl: {str(flat['isDdl']).lower()} sql: {quoted(flat['sql'] or '')} "
    if flat["isDdl"]:
        return text + f"ddlSchemaName: {quoted(flat['database'].strip('`'))}"
    for place, row in enumerate(flat["data"]):
        match flat["type"]:
            case "INSERT":
                text += f"rowDatas {{ {columns('afterColumns', row, flat, row)} }} "
            case "DELETE":
                text += f"rowDatas {{ {columns('beforeColumns', row, flat)} }} "
            case "UPDATE":
                old = flat["old"][place]
                before = columns("beforeColumns", {**row, **old}, flat)
                text += f"rowDatas {{ {before} {columns('afterColumns', row, flat, old)} }} "
    return text


def packets(jvm: Any) -> Iterator[tuple[dict[str, Any], bytes]]:
    """(the first record of each batch, its packet)."""
    protocol = jvm.com.alibaba.otter.canal.protocol
    entries, merge = protocol.CanalEntry, jvm.com.google.protobuf.TextFormat.merge

    def entry(kind: str, header: str, store_value: Any) -> Any:
        builder = entries.Entry.newBuilder()
        merge(f"entryType: {kind} header {{ {HEADER} {header} }}", builder)
        builder.setStoreValue(store_value.build().toByteString())
        return builder.build()

    with gzip.open(DATA / "canal-flat.jsonl.gz", "rt") as file:
        records = [json.loads(line) for line in file]
    for number, group in groupby(records, key=lambda record: json.loads(record["value"])["id"]):
        of_batch = list(group)
        flats = [json.loads(record["value"]) for record in of_batch]
        time = f"executeTime: {flats[0]['es']}"
        message = protocol.Message(number, jvm.java.util.ArrayList())
        message.addEntry(entry("TRANSACTIONBEGIN", time, entries.TransactionBegin.newBuilder()))
        for flat in flats:
            change = entries.RowChange.newBuilder()
            merge(row_change(flat), change)
            names = f"schemaName: {quoted(flat['database'])} tableName: {quoted(flat['table'])}"
            gtid = f"gtid: {quoted(flat['gtid'])}" if flat["gtid"] else ""
            header = f"executeTime: {flat['es']} eventType: {flat['type']} {names} {gtid}"
            message.addEntry(entry("ROWDATA", header, change))
        message.addEntry(entry("TRANSACTIONEND", time, entries.TransactionEnd.newBuilder()))
        util = jvm.com.alibaba.otter.canal.connector.core.util.CanalMessageSerializerUtil
        yield of_batch[0], bytes(util.serializer(message, False))


def main() -> None:
    jars = ":".join(map(str, sorted(Path(sys.argv[1]).glob("*.jar"))))
    gateway = JavaGateway.launch_gateway(classpath=jars, die_on_exit=True)
    with gzip.GzipFile(DATA / "canal-packets.jsonl.gz", "wb", mtime=0) as file:
        for offset, (first, packet) in enumerate(packets(gateway.jvm)):
            line = {
                **first,
                "topic": "canal-packets",
                "offset": offset,
                "value": {"base64": base64.b64encode(packet).decode()},
            }
            file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")


if __name__ == "__main__":
    main()
