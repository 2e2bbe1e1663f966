"""The protobuf messages of a packet, with the fields that are read; others are passed over.

https://github.com/alibaba/canal/tree/master/protocol/src/main/java/com/alibaba/otter/canal/protocol
(CanalProtocol.proto, EntryProtocol.proto). Made here, for it needs no compiler then.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE = "binlane.canal"
_FIELDS: dict[str, dict[str, tuple[int, str]]] = {
    "Packet": {"type": (3, "int32"), "compression": (4, "int32"), "body": (5, "bytes")},
    "Messages": {
        "messages": (2, "repeated bytes"),
        # Not Canal's, which passes over it: of each message, the index of its first change in the record
        # that it was taken from.
        "first_index": (7301, "repeated uint32"),
    },
    "Entry": {"header": (1, "Header"), "entry_type": (2, "int32"), "store_value": (3, "bytes")},
    "Header": {
        "execute_time": (6, "int64"),
        "schema_name": (8, "string"),
        "table_name": (9, "string"),
        "event_type": (11, "int32"),
        "gtid": (13, "string"),
    },
    "RowChange": {
        "event_type": (2, "int32"),
        "is_ddl": (10, "bool"),
        "sql": (11, "string"),
        "row_datas": (12, "repeated RowData"),
    },
    "RowData": {"before_columns": (1, "repeated Column"), "after_columns": (2, "repeated Column")},
    "Column": {
        "name": (3, "string"),
        "is_key": (4, "bool"),
        "updated": (5, "bool"),
        "is_null": (6, "bool"),
        "value": (8, "string"),
        "mysql_type": (10, "string"),
    },
}


def _make() -> dict[str, Any]:
    """Name -> class."""
    file = descriptor_pb2.FileDescriptorProto(name="binlane/canal.proto", package=_PACKAGE, syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for field, (number, text) in fields.items():
            repeated, _, kind = text.rpartition(" ")
            added = message.field.add(name=field, number=number)
            added.label = kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL
            if kind in _FIELDS:
                added.type, added.type_name = kinds.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
            else:
                added.type = kinds.Type.Value(f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()  # of its own: nothing else may be registered under these names
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in _FIELDS
    }


_CLASSES = _make()
Packet: Any = _CLASSES["Packet"]
Messages: Any = _CLASSES["Messages"]
Entry: Any = _CLASSES["Entry"]
RowChange: Any = _CLASSES["RowChange"]
