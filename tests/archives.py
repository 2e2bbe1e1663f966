"""Archives of tar, unpacked as files and folders alone."""

from __future__ import annotations

import tarfile
from pathlib import Path

__all__ = ["opened_tar"]


def opened_tar(path: Path) -> tarfile.TarFile:
    """To be closed. Its members go nowhere but into the folder that is named to `extractall`, where Python
    has that filter: 3.11.2, Debian 12's own, has not."""
    file = tarfile.open(path)  # noqa: SIM115 - the caller closes it
    if hasattr(tarfile, "data_filter"):
        file.extraction_filter = tarfile.data_filter
    return file
