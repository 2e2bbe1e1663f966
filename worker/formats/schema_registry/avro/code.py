"""Generate Python code that reads values of one Avro schema. In the code, `b` are the bytes and `p` is the
position in them.

The code contains only numbers and its own names. Names from the schema occur only as `repr` writes them.
If the bytes end too soon, the code raises IndexError or struct.error, or returns a position after the end. So
the caller must compare the position with the number of bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Mapping
from functools import partial
from itertools import groupby
from typing import Any

from worker.formats.schema_registry.avro.schema import VALUE, AvroSchema, open_budget
from worker.formats.schema_registry.avro.values import Readers, int32, length, read_block, varint

_INDENT = "    "
_DEPTH = 4
"""Depth of nested records that get their own code. A plain reader reads deeper ones."""
_MOST_LINES = 30_000
"""A plain reader also reads records that need more lines. Two rows of 1,000 columns need 24,000, which take a
quarter of a second to compile."""
_ENUM_BYTE = 64
"""Most symbols of an enum whose numbers have one byte."""
_LINES = {"null": 0, "boolean": 1, "float": 1, "double": 1, "bytes": 7, "string": 7, "int": 3, "long": 3}
_LINES_OF_OTHERS, _LINES_OF_NULLABLE = 13, 7


def branches_of(schema: AvroSchema) -> tuple[int, int] | None:
    """(branch of null, other branch) for a union of null and one type. None for other schemas."""
    if schema.kind != "union" or len(schema.branches) != 2:
        return None
    kinds = [branch.kind for branch in schema.branches]
    if kinds.count("null") != 1:
        return None
    null = kinds.index("null")
    # Nested unions, which Avro forbids, would become more nested blocks than Python accepts.
    return None if kinds[1 - null] == "union" else (null, 1 - null)


class Code:
    """A generator of one function's lines."""

    def __init__(self, arguments: str = "b, p") -> None:
        self.lines = [f"def made({arguments}):"]
        self.known: dict[str, Any] = {
            "varint": varint,
            "int32": int32,
            "length": length,
            "unpack_float": struct.Struct("<f").unpack_from,
            "unpack_double": struct.Struct("<d").unpack_from,
        }
        self._depth = 1
        self._readers = Readers()
        self._sizes: dict[tuple[int, int], int] = {}

    def line(self, text: str) -> None:
        self.lines.append(_INDENT * self._depth + text)

    def block(self, head: str, *body: str | Callable[[], object]) -> None:
        """Add a head (with its colon) and its block. `body`: lines, or functions that add lines."""
        self.line(head)
        self._depth += 1
        count = len(self.lines)
        for each in body:
            if isinstance(each, str):
                self.line(each)
            else:
                each()
        if len(self.lines) == count:
            self.line("pass")
        self._depth -= 1

    def bind(self, value: object) -> str:
        """Make a name for an object in the code."""
        name = f"k{len(self.known)}"
        self.known[name] = value
        return name

    def made(self) -> Callable[..., Any]:
        head, *body = self.lines
        if self._readers.take:
            head = f"{head}\n{_INDENT}{self.bind(open_budget)}()"
        exec("\n".join((head, *body)), self.known)
        found: Callable[..., Any] = self.known["made"]
        return found

    # ---- values

    def nullable(
        self, schema: AvroSchema, other: Callable[[AvroSchema], None], null: Callable[[], None]
    ) -> None:
        """Add code for a union of null and one type: `other` handles the value, `null` handles null. For any
        other schema, `other` handles its value."""
        found = branches_of(schema)
        if found is None:
            other(schema)
            return
        none, some = found
        self.line("n = b[p]")
        self.line("p += 1")
        self.block(f"if n == {2 * some}:", lambda: other(schema.branches[some]))
        self.block(f"elif n == {2 * none}:", null)
        self.block("else:", "raise ValueError('a branch that its union does not have')")

    def read(self, schema: AvroSchema, name: str) -> None:
        """Add code that puts the value into the variable `name`."""
        match schema.kind:
            case "null":
                self.line(f"{name} = None")
            case "boolean":
                self.line("n = b[p]")
                self.line("p += 1")
                self.block("if n > 1:", "raise ValueError('not a boolean')")
                self.line(f"{name} = n == 1")
            case "int" | "long":
                self.line("n = b[p]")
                self.block("if n < 128:", "p += 1", f"{name} = (n >> 1) ^ -(n & 1)")
                # A number of two bytes also has its sign in the first byte.
                self.block(
                    "elif b[p + 1] < 128:", f"{name} = ((n & 127) >> 1 | b[p + 1] << 6) ^ -(n & 1)", "p += 2"
                )
                self.block("else:", f"{name}, p = {'int32' if schema.kind == 'int' else 'varint'}(b, p)")
            case "float" | "double":
                self.line(f"{name}, = unpack_{schema.kind}(b, p)")
                self.line(f"p += {4 if schema.kind == 'float' else 8}")
            case "bytes" | "string":
                self._length()
                self.line("q = p + n")
                self.line(f"{name} = b[p:q]{'.decode()' if schema.kind == 'string' else ''}")
                self.line("p = q")
            case "enum" if len(schema.symbols) <= _ENUM_BYTE:
                symbols = self.bind({place * 2: symbol for place, symbol in enumerate(schema.symbols)})
                self.line(f"{name} = {symbols}.get(b[p])")
                self.line("p += 1")
                self.block(f"if {name} is None:", "raise ValueError('a symbol that its enum does not have')")
            case "map" if schema.items is not None and schema.items.kind == "string":
                read = partial(self.read, schema.items)
                self.line(f"{name} = {{}}")
                self._each(partial(read, "key"), partial(read, "item"), f"{name}[key] = item")
            case "union" if branches_of(schema) is not None:
                self.nullable(schema, lambda some: self.read(some, name), lambda: self.line(f"{name} = None"))
            case _:
                self._whole(schema, name)

    def skip(self, schema: AvroSchema, depth: int = 0) -> None:
        """Add code that moves to the position after the value."""
        match schema.kind:
            case "null":
                pass
            case "boolean":
                self.line("p += 1")
            case "int" | "long" | "enum":
                self.block("while b[p] > 127:", "p += 1")
                self.line("p += 1")
            case "float":
                self.line("p += 4")
            case "double":
                self.line("p += 8")
            case "fixed":
                self.line(f"p += {schema.size}")
            case "bytes" | "string":
                self._length()
                self.line("p += n")
            case "array" if schema.items is not None and schema.items.kind in _LINES:
                self._each(partial(self.skip, schema.items))
            case "union" if branches_of(schema) is not None:
                self.nullable(schema, lambda some: self.skip(some, depth), lambda: None)
            case "record" if depth < _DEPTH and len(self.lines) + self._size(schema, depth) <= _MOST_LINES:
                for field in schema.fields:
                    self.skip(field.type, depth + 1)
            case _:
                self._whole(schema, "_")

    def _each(self, *body: str | Callable[[], object]) -> None:
        """Add code for each item of an array or a map."""
        self._readers.take_from_budget()
        next_block = f"count, p = {self.bind(read_block)}(b, p, {VALUE})"
        self.line(next_block)
        self.block("while count:", lambda: self.block("for _ in range(count):", *body), next_block)

    def _whole(self, schema: AvroSchema, name: str) -> None:
        self.line(f"{name}, p = {self.bind(self._readers.charged(schema))}(b, p)")

    def _size(self, schema: AvroSchema, depth: int) -> int:
        """The approximate number of lines that `skip` adds for the schema."""
        found = branches_of(schema)
        if found is not None:
            return _LINES_OF_NULLABLE + self._size(schema.branches[found[1]], depth)
        if schema.kind != "record" or depth >= _DEPTH:
            return _LINES.get(schema.kind, _LINES_OF_OTHERS)
        key = id(schema), depth
        if key not in self._sizes:
            self._sizes[key] = sum(self._size(field.type, depth + 1) for field in schema.fields)
        return self._sizes[key]

    def fields(self, schema: AvroSchema, wanted: Mapping[str, str]) -> None:
        """Add code that reads some fields into variables and skips others. `wanted`: field -> variable."""
        for field in schema.fields:
            name = wanted.get(field.name)
            if name is None:
                self.skip(field.type)
            else:
                self.read(field.type, name)

    def steady(self, schema: AvroSchema, wanted: Mapping[str, str], names: Collection[str]) -> None:
        """As `fields`, but fields with these `names` nearly always have the previous record's values. If a
        run of such fields has the same bytes again, the code reuses the values."""
        for is_steady, run in groupby(schema.fields, key=lambda field: field.name in names):
            fields = AvroSchema("record", fields=tuple(run))
            if not is_steady:
                self.fields(fields, wanted)
                continue
            found = [wanted[field.name] for field in fields.fields if field.name in wanted]
            # Threads share this tuple, because it is replaced as a whole.
            last = self.bind([(b"\xff" * 16, 0, *(None for _ in found))])
            values = "".join(f", {name}" for name in found)
            self.line(f"last = {last}[0]")
            self.block("if b.startswith(last[0], p):", f"_, n{values} = last", "p += n")
            self.block(
                "else:",
                "begin = p",
                partial(self.fields, fields, wanted),
                f"if p <= len(b): {last}[0] = (b[begin:p], p - begin{values})",
            )

    def _length(self) -> None:
        self.line("n = b[p]")
        self.block("if n & 129:", "n, p = length(b, p)")
        self.block("else:", "p += 1", "n >>= 1")
