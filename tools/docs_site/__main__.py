"""Build the site into a folder, `build/site` by default. The exit code is 1 if anything is wrong."""

from __future__ import annotations

import sys
from pathlib import Path

from docs_site.build import SiteError, build

_ROOT = Path(__file__).parents[2]


def main(arguments: list[str]) -> int:
    folder = Path(arguments[0]) if arguments else _ROOT / "build" / "site"
    try:
        pages = build(_ROOT, folder)
    except SiteError as error:
        print(error, file=sys.stderr)  # noqa: T201 - the answer
        return 1
    print(f"{pages} pages in {folder}: open {folder / 'index.html'}, or serve the folder")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
