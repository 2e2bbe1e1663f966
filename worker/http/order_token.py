"""The secret by which an order proves, without http.token, that it comes from the worker's own machine.

An address proves nothing: behind a sidecar or a plain proxy every client comes from this machine.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from handlers.logs import get_logger

log = get_logger("http")


def order_token_file(folder: Path, port: int) -> Path:
    """Where a worker with this `checkpoint.directory` and `http.port` keeps it."""
    return folder / f"order-token-{port}"


def write_order_token(folder: Path, port: int, token: str) -> None:
    """Write it so that only the worker's user can read it. That it cannot be written is logged."""
    path = order_token_file(folder, port)
    # Two containers may have the same process id.
    new = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(token)
        new.replace(path)
    except OSError as error:
        log.warning("order_token_not_written", file=str(path), error=str(error))
