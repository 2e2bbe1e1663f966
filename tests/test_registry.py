"""How a handler's type leads to its class."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel, ConfigDict, Field

from handlers import Batch, Handler
from handlers.coroutines import Awaited
from handlers.loading.registry import BUILT_IN, HandlerTypeError, OptionsError, create, load_function, resolve
from handlers.options.faults import Explanation, check_options

ALLOWED = f"{', '.join(BUILT_IN)}, or an import path such as my_package.module:MyHandler"
SOURCE = """\
from handlers import Batch, Handler
import shelf_of_{name}

class Copy(Handler):
    def __init__(self, url="x", **more):
        if url == "bad":
            raise RuntimeError("no such place")
        if url == "worse":
            raise SystemExit(5)
        self.url, self.more = url, more
        self.shelf = shelf_of_{name}.SHELF

    def handle(self, batch: Batch) -> None: ...

class Idle(Handler): ...
class Stranger: ...
value = 5
"""


class Entry(NamedTuple):
    type: str
    options: dict[str, Any]


@pytest.fixture
def module(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module in `tmp_path` with a name of its own, which imports its neighbour."""
    name = f"m{abs(hash(request.node.nodeid))}"
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / f"{name}.py").write_text(SOURCE.format(name=name))
    (tmp_path / f"shelf_of_{name}.py").write_text("SHELF = 'shelf'\n")
    return name


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_built_in_name_leads_to_its_class(name: str, tmp_path: Path) -> None:
    found = resolve(name, tmp_path)
    assert issubclass(found, Handler)
    folder = "elasticsearch" if name == "opensearch" else name
    assert f"{found.__module__}".startswith(f"handlers.{folder}")


def test_spark_is_not_loaded_to_find_another_handler(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from handlers.loading.registry import resolve; "
        "resolve('log', Path()); print([m for m in sys.modules if 'spark' in m])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_module_beside_the_configuration_is_found_and_finds_its_neighbours(
    module: str, tmp_path: Path
) -> None:
    handler = create(Entry(f"{module}:Copy", {"url": "y", "a": 1}), tmp_path)
    assert vars(handler) == {"url": "y", "more": {"a": 1}, "shelf": "shelf"}


def test_each_creation_gives_an_object_of_its_own(module: str, tmp_path: Path) -> None:
    entry = Entry(f"{module}:Copy", {})
    assert create(entry, tmp_path) is not create(entry, tmp_path)


def test_pythonpath_comes_before_the_configurations_folder(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tmp_path / "first"
    first.mkdir()
    (first / f"{module}.py").write_text(
        "from handlers import Handler\n"
        "class Copy(Handler):\n    place = 'first'\n    def handle(self, b): ...\n"
    )
    monkeypatch.syspath_prepend(str(first))
    assert vars(resolve(f"{module}:Copy", tmp_path))["place"] == "first"


@pytest.mark.parametrize(
    ("handler_type", "problem", "allowed", "nearest"),
    [
        ("lgo", "there is no such handler", ALLOWED, "log"),
        ("my.module.Thing", "there is no such handler", ALLOWED, "my.module:Thing"),
        ("MODULE:", "not an import path", ALLOWED, None),
        (":Copy", "not an import path", ALLOWED, None),
        ("../x:Copy", "not an import path", ALLOWED, None),
        ("spark:Handler", "there is no module spark on PYTHONPATH or in FOLDER", ALLOWED, None),
        ("no_such.module:Thing", "there is no module no_such on PYTHONPATH or in FOLDER", ALLOWED, None),
        ("MODULE.py:Copy", "there is no module MODULE.py on PYTHONPATH or in FOLDER", ALLOWED, "MODULE:Copy"),
        ("PostgreSQL", "there is no such handler", ALLOWED, "sql"),
        ("MODULE:Cpoy", "the module MODULE has no Cpoy", "Copy, Idle", "MODULE:Copy"),
        ("MODULE:value", "value is not a class", "a class that inherits from binlane.Handler", None),
        (
            "MODULE:Stranger",
            "Stranger does not inherit from binlane.Handler",
            "a class that inherits from it",
            None,
        ),
        ("MODULE:Idle", "Idle has no handle method", "a class with handle(self, batch)", None),
    ],
)
def test_a_type_that_leads_nowhere_is_told(
    module: str, tmp_path: Path, *, handler_type: str, problem: str, allowed: str, nearest: str | None
) -> None:
    with pytest.raises(HandlerTypeError) as caught:
        resolve(handler_type.replace("MODULE", module), tmp_path)
    expected = problem.replace("MODULE", module).replace("FOLDER", str(tmp_path))
    assert (caught.value.problem, caught.value.allowed) == (expected, allowed)
    assert caught.value.nearest == (nearest and nearest.replace("MODULE", module))


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("\nimport no_such_library", "ModuleNotFoundError: No module named 'no_such_library' (FILE, line 2)"),
        ("raise RuntimeError('two\\nlines')", "RuntimeError: two lines (FILE, line 1)"),
        ("\n\nimport json\njson.loads('{')", "JSONDecodeError: Expecting property name enclosed"),
        (
            "import json\n\njson.loads('')",
            "JSONDecodeError: Expecting value: line 1 column 1 (char 0) (FILE, line 3)",
        ),
        ("class :", "SyntaxError: invalid syntax"),
        ("import sys; sys.exit()", "it ends the process: sys.exit()"),
        ("import sys; sys.exit('no licence')", "it ends the process: sys.exit('no licence')"),
    ],
)
def test_a_module_that_fails_is_told_with_its_error_in_one_line(
    module: str, tmp_path: Path, source: str, told: str
) -> None:
    (tmp_path / f"broken_{module}.py").write_text(source)
    with pytest.raises(HandlerTypeError) as caught:
        resolve(f"broken_{module}:Copy", tmp_path)
    told = told.replace("FILE", f"broken_{module}.py")
    assert caught.value.problem.startswith(f"its module cannot be imported: {told}")
    assert caught.value.allowed == "a module that Python can import"
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["queue", "sched", "sys"])
def test_a_module_behind_which_ones_own_is_hidden_is_told(tmp_path: Path, name: str) -> None:
    own = tmp_path / f"{name}.py"
    own.write_text("from binlane import Handler\nclass Copy(Handler):\n    def handle(self, batch): ...\n")
    with pytest.raises(HandlerTypeError) as caught:
        resolve(f"{name}:Copy", tmp_path)
    found = getattr(importlib.import_module(name), "__file__", None) or "Python itself"
    assert caught.value.problem == (
        f"the module {name} has no Copy: it was loaded from {found}, which is found before {own}"
    )
    assert caught.value.allowed == "another name for your module"
    with pytest.raises(HandlerTypeError, match=f"the module {name} has no copy: it was loaded from "):
        load_function(f"{name}:copy", tmp_path, ["batch"])


def test_a_handler_that_raises_when_made_is_told(module: str, tmp_path: Path) -> None:
    with pytest.raises(OptionsError, match="refused its options: RuntimeError: no such place"):
        create(Entry(f"{module}:Copy", {"url": "bad"}), tmp_path)


def test_a_handler_that_ends_the_process_when_made_is_told(module: str, tmp_path: Path) -> None:
    with pytest.raises(OptionsError, match=r"refused its options: it ends the process: sys\.exit\(5\)"):
        create(Entry(f"{module}:Copy", {"url": "worse"}), tmp_path)


@pytest.mark.parametrize(
    ("method", "problem", "allowed"),
    [
        ("async def handle(self, batch): yield", "handle has a yield", "handle(self, batch)"),
        ("def handle(self, batch): yield", "handle has a yield", "handle(self, batch)"),
        (
            "def handle(self): ...",
            "handle cannot be called with (self, batch): too many",
            "handle(self, batch)",
        ),
        (
            "def open(self): ...",
            "open cannot be called with (self, context): too many",
            "open(self, context)",
        ),
        ("async def open(self, context): ...", "open is async, but handle is not", "open(self, context)"),
        ("async def close(self): ...", "close is async, but handle is not", "close(self)"),
        ("def close(self, context): ...", "close cannot be called with (self): missing", "close(self)"),
        ("@staticmethod\n    def close(self): ...", "close cannot be called with (): missing", "close(self)"),
    ],
)
def test_methods_whose_call_would_do_nothing_or_fail_are_told(
    module: str, tmp_path: Path, method: str, problem: str, allowed: str
) -> None:
    (tmp_path / f"odd_{module}.py").write_text(
        "from handlers import Handler\n"
        "class Copy(Handler):\n"
        "    def handle(self, *batches, **more): ...\n"
        f"    {method}\n"
    )
    with pytest.raises(HandlerTypeError) as caught:
        resolve(f"odd_{module}:Copy", tmp_path)
    assert caught.value.problem.startswith(f"Copy.{problem}")
    assert caught.value.allowed == f"def {allowed}"


ASYNC = """
from handlers import Handler
from handlers.sql import SqlHandler
class Awaited(Handler):
    async def open(self, context): ...
    async def handle(self, batch): ...
    async def release(self, partitions): ...
    async def check(self, context): ...
    async def close(self): ...
class Child(Awaited):
    async def handle(self, batch): ...
class Late(Awaited):
    async def handle(self): ...
class Asked(Awaited):
    async def status(self): ...
class Threaded(SqlHandler):
    async def handle(self, batch): ...
class Mixed(Awaited):
    def handle(self, batch): ...
"""


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("Awaited", None),
        ("Child", None),
        ("Late", "Late.handle cannot be called with (self, batch): too many"),
        ("Asked", "Asked.status is async, but it is asked from any thread, and must answer at once"),
        (
            "Threaded",
            "Threaded.handle is async, but SqlHandler.handle, which it overrides, is not: it needs a thread",
        ),
        ("Mixed", "Mixed.open is async, but handle is not: make both async, or neither"),
    ],
)
def test_handlers_with_coroutines_are_either_whole_or_told(
    module: str, tmp_path: Path, name: str, problem: str | None
) -> None:
    (tmp_path / f"async_{module}.py").write_text(ASYNC)
    if problem is None:
        made = create(Entry(f"async_{module}:{name}", {}), tmp_path)
        assert isinstance(made, Awaited)
        return
    with pytest.raises(HandlerTypeError) as caught:
        resolve(f"async_{module}:{name}", tmp_path)
    assert caught.value.problem.startswith(problem)


class Plain(Handler):
    def handle(self, batch: Batch) -> None: ...


class Signed(Plain):
    def __init__(self, url: str, *, retries: int = 3) -> None:
        super().__init__()


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid")
    url: str
    sizes: list[int] = Field(default=[])
    by_name: dict[str, int] = Field(default={})
    either: int | bool | None = None


class Modelled(Plain):
    options_model = Options


@pytest.mark.parametrize(
    ("handler", "options", "expected"),
    [
        (Plain, {}, []),
        (Plain, {"a": 1}, [Explanation(("a",), "unknown key", "no options")]),
        (Signed, {"url": "x"}, []),
        (Signed, {"retries": 1}, [Explanation(("url",), "missing", "")]),
        (
            Signed,
            {"url": "x", "retires": 1},
            [Explanation(("retires",), "unknown key", "url, retries", "retries")],
        ),
        (Modelled, {"url": "x", "sizes": [1], "by_name": {"a": 1}, "either": None}, []),
        (Modelled, {}, [Explanation(("url",), "missing", "")]),
        (
            Modelled,
            {"ulr": "x", "url": "x"},
            [Explanation(("ulr",), "unknown key", "by_name, either, sizes, url", "url")],
        ),
        (
            Modelled,
            {"url": "x", "sizes": [1, "b"]},
            [Explanation(("sizes", 1), "value", "a whole number")],
        ),
        (
            Modelled,
            {"url": "x", "by_name": {"a": "b"}},
            [Explanation(("by_name", "a"), "value", "a whole number")],
        ),
        (Modelled, {"url": "x", "either": "b"}, [Explanation(("either",), "value", "a whole number")]),
    ],
)
def test_options_are_checked_by_the_model_or_the_signature(
    handler: type[Handler], options: dict[str, Any], expected: list[Explanation]
) -> None:
    assert check_options(handler, options) == expected


def test_options_that_were_not_checked_before_are_checked_when_a_handler_is_made(
    module: str, tmp_path: Path
) -> None:
    (tmp_path / f"strict_{module}.py").write_text(
        "from handlers import Handler\nclass Copy(Handler):\n"
        "    def __init__(self, url): ...\n    def handle(self, b): ...\n"
    )
    with pytest.raises(OptionsError, match="ulr: unknown key; allowed: url; nearest: url"):
        create(Entry(f"strict_{module}:Copy", {"ulr": "x"}), tmp_path)
