"""Users' modules that share a name with a package of binlane, such as `handlers.py` in their folder."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

OWN = frozenset(("binlane", "handlers", "offsets", "worker"))
"""These names always import binlane's own packages, whatever is on the path."""

_PREFIX = "user_"


def user_module(name: str) -> ModuleType | None:
    """Import the user's module with one of binlane's names: `handlers` as `user_handlers`, for example.

    None if the import path has no such file. Within the module, `import handlers` is binlane's.
    Raises whatever the module raises. Raises ModuleNotFoundError if a part of `name` after the first does
    not exist.
    """
    top, _, rest = name.partition(".")
    if f"{_PREFIX}{top}" not in sys.modules:
        file = _file_of(top)
        if file is None:
            return None
        _load(f"{_PREFIX}{top}", file)
    return importlib.import_module(f"{_PREFIX}{name}" if rest else f"{_PREFIX}{top}")


def _file_of(top: str) -> Path | None:
    """Return the first file or folder on the import path that is not binlane's own."""
    own = Path(__file__).resolve().parents[2]
    for entry in sys.path:
        folder = Path(entry or ".").resolve()
        if folder == own:
            continue
        for file in (folder / top / "__init__.py", folder / f"{top}.py", folder / top):
            if file.exists():
                return file
    return None


def _load(name: str, file: Path) -> None:
    if file.is_dir():  # a package without __init__.py
        sys.modules[name] = package = ModuleType(name)
        package.__path__ = [str(file)]
        return
    folders = [str(file.parent)] if file.name == "__init__.py" else None
    spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=folders)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} cannot be imported")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
