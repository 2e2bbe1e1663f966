"""Print the size of the product's structure, and each class beyond a limit.

    python tools/figures.py [--all]

The limits: 9 parameters of a constructor, 12 attributes of an object, 70,000 lines, 560 files. Nothing sets
an attribute of another object after it was created. A class may inherit from another class of the product
only if that is a protocol, an exception, a model or `Handler`.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PACKAGES = ("binlane", "handlers", "offsets", "worker")
MOST_PARAMETERS = 9
MOST_ATTRIBUTES = 12
MOST_LINES = 70_000
MOST_FILES = 560
_MAY_BE_INHERITED = ("Handler", "Protocol", "BaseModel", "Struct", "Exception", "Section", "Options")


class Found(NamedTuple):
    kind: str
    where: str
    """File, line and class."""
    figure: str


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--all", action="store_true", help="name each place, not only the sums")
    arguments = parser.parse_args()
    root = Path(__file__).parent.parent
    files = sorted(file for package in PACKAGES for file in (root / package).rglob("*.py"))
    lines = sum(file.read_text(encoding="utf-8").count("\n") for file in files)
    trees = {str(file.relative_to(root)): ast.parse(file.read_text(encoding="utf-8")) for file in files}
    found = list(places(trees))
    told = [f"lines: {lines:,} (at most {MOST_LINES:,}); files: {len(files)} (at most {MOST_FILES})"]
    for kind in ("parameters", "attributes", "set from outside", "inheritance"):
        own = [one for one in found if one.kind == kind]
        told.append(f"{kind}: {len(own)}")
        told += [f"  {one.where}: {one.figure}" for one in own if arguments.all]
    sys.stdout.write("\n".join(told) + "\n")


def places(trees: dict[str, ast.Module]) -> Iterator[Found]:
    """Yield all findings. `trees`: file -> its syntax tree."""
    classes = Classes(trees)
    for file, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                yield from _of_class(file, node, classes)
            elif isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
                yield from _set_from_outside(file, node)


class Classes:
    """The classes of the product, and what their bases are."""

    def __init__(self, trees: dict[str, ast.Module]) -> None:
        self._own: dict[tuple[str, str], ast.ClassDef] = {}
        self._imported: dict[tuple[str, str], tuple[str, str]] = {}
        for file, tree in trees.items():
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    self._own[file, node.name] = node
                elif isinstance(node, ast.ImportFrom) and node.module:
                    path = node.module.replace(".", "/")
                    other = f"{path}.py" if f"{path}.py" in trees else f"{path}/__init__.py"
                    for each in node.names:
                        self._imported[file, each.asname or each.name] = other, each.name

    def find(self, file: str, name: str) -> tuple[str, ast.ClassDef] | None:
        """Return the product's class with this name in this file, and the file that defines it."""
        place = file, name
        while place not in self._own:
            if place not in self._imported:
                return None
            place = self._imported[place]
        return place[0], self._own[place]

    def leads_to(self, file: str, base: str, wanted: tuple[str, ...]) -> bool:
        """Whether this base is one of the wanted classes, or inherits from one."""
        if base.rsplit(".", 1)[-1] in wanted:
            return True
        known = self.find(file, base)
        return known is not None and any(self.leads_to(known[0], one, wanted) for one in bases(known[1]))


def bases(node: ast.ClassDef) -> list[str]:
    return [ast.unparse(base).split("[", 1)[0] for base in node.bases]


def _of_class(file: str, node: ast.ClassDef, classes: Classes) -> Iterator[Found]:
    where = f"{file}:{node.lineno} {node.name}"
    is_by_hand = _is_made_by_hand(file, node, classes)
    fields = {
        one.target.id
        for one in node.body
        if isinstance(one, ast.AnnAssign)
        and isinstance(one.target, ast.Name)
        and "ClassVar" not in ast.unparse(one.annotation)
    }
    is_dataclass = any("dataclass" in ast.unparse(one) for one in node.decorator_list)
    maker = next(
        (one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"), None
    )
    given = len(fields) if is_dataclass else 0
    if maker is not None:
        arguments = maker.args
        given = len([*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]) - 1
    if given > MOST_PARAMETERS and is_by_hand:
        yield Found("parameters", where, str(given))
    own = {
        target.attr
        for method in node.body
        if isinstance(method, ast.FunctionDef)
        for target in ast.walk(method)
        if isinstance(target, ast.Attribute)
        and isinstance(target.ctx, ast.Store)
        and isinstance(target.value, ast.Name)
        and target.value.id == "self"
    }
    attributes = own | (fields if is_dataclass else set())
    if len(attributes) > MOST_ATTRIBUTES and is_by_hand:
        yield Found("attributes", where, str(len(attributes)))
    for name in bases(node):
        found = classes.find(file, name)
        if found is not None and not _may_be_inherited(name, *found, classes):
            yield Found("inheritance", where, name)


def _is_made_by_hand(file: str, node: ast.ClassDef, classes: Classes) -> bool:
    """Exclude models of configurations and messages, which have as many fields as what they describe."""
    wanted = ("BaseModel", "Struct", "NamedTuple", "TypedDict", "Section")
    return not any(classes.leads_to(file, base, wanted) for base in bases(node))


def _may_be_inherited(name: str, file: str, node: ast.ClassDef, classes: Classes) -> bool:
    return name in _MAY_BE_INHERITED or any(
        classes.leads_to(file, base, _MAY_BE_INHERITED) or "Error" in base for base in bases(node)
    )


def _set_from_outside(file: str, node: ast.Assign | ast.AugAssign | ast.AnnAssign) -> Iterator[Found]:
    """Find `a.b.c = x`, where a.b is another object held by the class and created elsewhere."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    for target in targets:
        if (
            isinstance(target, ast.Attribute)
            and isinstance(target.value, ast.Attribute)
            and isinstance(target.value.value, ast.Name)
            and target.value.value.id == "self"
        ):
            yield Found("set from outside", f"{file}:{node.lineno}", ast.unparse(target))


if __name__ == "__main__":
    main()
