"""The secret that proves, without http.token, that a request comes from the worker's own machine.

An address proves nothing: behind a sidecar or a plain proxy, every client has this machine's address.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from handlers.logs import get_logger

log = get_logger("http")


def order_token_file(folder: Path, port: int) -> Path:
    """Return the token file of a worker with this `checkpoint.directory` and `http.port`."""
    return folder / f"order-token-{port}"


def write_order_token(folder: Path, port: int, token: str) -> None:
    """Write the token so that only the worker's user can read it. A failure is logged."""
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
