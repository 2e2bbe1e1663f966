"""Messages between the worker and its child processes, each with its length before it."""

from __future__ import annotations

import contextlib
import pickle
import socket
from typing import Any

import msgspec

EVENTS, REQUESTS = b"e", b"r"
"""Kinds of connections. `EVENTS`: the child sends log lines, metrics and errors, and gets no answer."""

_LENGTH = 8
_PICKLED = 1 << 63
"""Added to the length of a message that MessagePack cannot represent."""
_encode = msgspec.msgpack.Encoder(enc_hook=str).encode
_decode = msgspec.msgpack.Decoder().decode


class Frames:
    """One end of a connection. Only one thread may send, and one may receive."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    def send(self, message: Any) -> None:
        """Raises OSError if the other process has ended, and another error if the message cannot be sent."""
        try:
            data, mark = _encode(message), 0
        except Exception:  # a surrogate in a text, or a number of more than 64 bits
            data, mark = pickle.dumps(message), _PICKLED
        self._socket.sendall(b"".join(((len(data) | mark).to_bytes(_LENGTH), data)))

    def receive(self) -> Any:
        """Raises EOFError or OSError if the other process has ended."""
        length = int.from_bytes(self._exactly(_LENGTH))
        if length & _PICKLED:
            return pickle.loads(self._exactly(length ^ _PICKLED))
        return _decode(self._exactly(length))

    def shut(self) -> None:
        """Let both ends find that it has ended, after what is on its way."""
        with contextlib.suppress(OSError):  # it is closed
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()

    def _exactly(self, count: int) -> bytearray:
        data = bytearray(count)
        left = memoryview(data)
        while left:
            read = self._socket.recv_into(left, 0, socket.MSG_WAITALL)
            if not read:
                raise EOFError("the other process has ended")
            left = left[read:]
        return data
