"""A file that cannot be read as one mapping is told in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from configuration.shorthand import Faults

from worker.configuration import ConfigurationError, load

INDENT = (
    "found a line whose indentation differs from its neighbours; allowed: the keys of a mapping in one "
    "column, and the items of a list"
)
COLON = (
    "found a colon where no key is expected; allowed: a value with a colon in quotes; the keys of a "
    "mapping in one column"
)


def special(sign: str) -> str:
    return f"found a value that begins with {sign}, which has a meaning in YAML; allowed: the value in quotes"


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"", "shop.yaml: the file is empty; allowed: a mapping with the key kafka"),
        (b"# nothing\n", "shop.yaml: the file is empty; allowed: a mapping with the key kafka"),
        (b"- a\n", "shop.yaml:1: found a list; allowed: a mapping with the key kafka"),
        (b"\nkafka\n", "shop.yaml:2: found a single value; allowed: a mapping with the key kafka"),
        (b"kafka:\n\tgroup_id: a\n", "shop.yaml:2: found a tab; allowed: spaces for indentation"),
        (b"a: 1\n---\nb: 2\n", "shop.yaml:2: found a second document; allowed: one document"),
        (
            b"kafka: {\n",
            "shop.yaml:2: found { or [ that is not closed; allowed: the matching } or ]",
        ),
        (
            b"a: {b: c\n",
            "shop.yaml:2: found { or [ that is not closed; allowed: the matching } or ]",
        ),
        (
            b"a: 'b\n",
            "shop.yaml:2: found a quote that is not closed; allowed: the matching quote",
        ),
        (b"a:\n  b\nc: d\n  e: f\n", f"shop.yaml:4: {COLON}"),
        (b"a: b: c\n", f"shop.yaml:1: {COLON}"),
        (b"a:\n  b: c\n d: e\n", f"shop.yaml:3: {INDENT}"),
        (b"a:\n  - b: c\n  d: e\n", f"shop.yaml:3: {INDENT}"),
        (b"a: b\nc\nd: e\n", "shop.yaml:3: found a line without a colon after its key; allowed: key: value"),
        (b"a: *.b\n", f"shop.yaml:1: {special('*')}, or an anchor's name after *"),
        (b"a: *\n", f"shop.yaml:1: {special('*')}, or an anchor's name after *"),
        (b"a: &.b\n", f"shop.yaml:1: {special('&')}"),
        (b"a: %b\n", f"shop.yaml:1: {special('%')}"),
        (b"a: @b\n", f"shop.yaml:1: {special('@')}"),
        (
            b"kafka: {a: ${B}}\n",
            'shop.yaml:1: found ${...} within {...} or [...]; allowed: "${...}" in quotes',
        ),
        (b"kafka: *a\n", f"shop.yaml:1: {special('*')}, or an anchor's name after *"),
        (b"kafka: \xff\n", "shop.yaml: the file is not UTF-8 text"),
        (b"kafka:\n  a: \x00\n", "shop.yaml:2: found a control character; allowed: UTF-8 text"),
        (b"[" * 5000, "shop.yaml: nested too deeply; allowed: a mapping of the keys"),
    ],
)
def test_a_file_that_is_no_configuration_is_told_in_one_line(
    tmp_path: Path, content: bytes, line: str
) -> None:
    path = tmp_path / "shop.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError) as caught:
        load(path)
    assert str(caught.value).replace(f"{tmp_path}/", "") == line


@pytest.mark.parametrize("merged", [False, True])
def test_aliases_of_aliases_end_soon(tmp_path: Path, merged: bool) -> None:
    """A "billion laughs": nine lines that stand for three billion values."""
    lines = ["a0: &a0 {k: x}" if merged else "a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    for level in range(1, 10):
        several = ", ".join(f"k{n}: *a{level - 1}" if merged else f"*a{level - 1}" for n in range(9))
        lines.append(f"a{level}: &a{level} {{{several}}}" if merged else f"a{level}: &a{level} [{several}]")
    path = tmp_path / "shop.yaml"
    path.write_text("\n".join([*lines, "<<: *a9" if merged else ""]))
    with pytest.raises(ConfigurationError) as caught:
        load(path)
    [line] = str(caught.value).splitlines()
    assert line.endswith(
        ": found aliases that repeat more than 20,000 values; allowed: fewer aliases, or the values "
        "written out"
    )


def test_many_tables_may_share_one_anchor(tmp_path: Path) -> None:
    rules = "\n".join(f"  - {{match: shop.t{n}, handlers: *handlers}}" for n in range(1_000))
    path = tmp_path / "shop.yaml"
    path.write_text(
        "kafka: {bootstrap_servers: localhost:9092, group_id: shop, topics: [cdc.shop]}\n"
        "tables:\n  - match: shop.first\n    handlers: &handlers\n      - {type: log, name: a}\n"
        f"      - {{type: log, name: b}}\n{rules}\n"
    )
    assert len(load(path).tables) == 1_001


@pytest.mark.parametrize(
    ("name", "reason"), [("missing.yaml", "No such file or directory"), (".", "Is a directory")]
)
def test_a_file_that_cannot_be_read_is_told_in_one_line(tmp_path: Path, name: str, reason: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path / name)
    assert str(caught.value) == f"{tmp_path / name}: the file cannot be read ({reason})"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("lanes: {}\nlanes: {}", "shop.yaml:6: lanes: the key occurs twice, first in line 5; allowed: once"),
        (
            "lanes:\n  count: 1\n  count: 2",
            "shop.yaml:7: lanes.count: the key occurs twice, first in line 6; allowed: once",
        ),
        ("? [a]\n: b", "shop.yaml:1: found a key that is a list or a mapping; allowed: a word as the key"),
        (
            "name: !!python/name:os.system x",
            'shop.yaml:5: name: found the tag "tag:yaml.org,2002:python/name:os.system"; allowed: values '
            "without a tag, quoted if they begin with !",
        ),
        (
            "spark: &a {conf: *a}",
            "shop.yaml:5: spark.conf: found an alias inside the part that it refers to; allowed: a finite "
            "value",
        ),
    ],
)
def test_yaml_that_does_not_say_one_thing_is_refused(faults: Faults, text: str, line: str) -> None:
    assert line in faults(text)
