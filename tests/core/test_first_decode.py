"""msgspec crashes the process if two threads are the first to decode a Struct.

So each Struct's decoder is made when its module is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted(
    file for folder in ("worker", "offsets", "handlers", "binlane") for file in ROOT.glob(f"{folder}/**/*.py")
)
BUILT_IN = {
    "str",
    "int",
    "float",
    "bool",
    "bytes",
    "list",
    "dict",
    "tuple",
    "Any",
    "msgspec.Raw",
    "None",
    "kind",
}
"""Types that msgspec prepares nothing for. `kind` is one of them in worker/formats/sample.py."""


def types_of(code: str) -> Iterator[str]:
    """Yield the types that msgspec's functions decode to."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in (
            "msgspec.json.decode",
            "msgspec.msgpack.decode",
        ):
            for keyword in node.keywords:
                if keyword.arg == "type":
                    yield from names_in(keyword.value)


def names_in(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Subscript):
        yield from names_in(node.value)
        yield from names_in(node.slice)
    elif isinstance(node, ast.Tuple):
        for each in node.elts:
            yield from names_in(each)
    elif isinstance(node, ast.BinOp):
        yield from names_in(node.left)
        yield from names_in(node.right)
    else:
        yield ast.unparse(node)


def test_no_function_of_the_product_is_the_first_to_decode_a_struct() -> None:
    assert len(FILES) > 400
    found = {str(file.relative_to(ROOT)): set(types_of(file.read_text())) - BUILT_IN for file in FILES}
    assert {file: types for file, types in found.items() if types} == {}


@pytest.mark.parametrize(
    "code",
    ["msgspec.json.decode(a, type=_Own)", "def f():\n  x = msgspec.msgpack.decode(a, type=list[Own | None])"],
)
def test_such_a_function_is_found(code: str) -> None:
    assert set(types_of(code)) - BUILT_IN
