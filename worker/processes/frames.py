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
_USUAL = 32 << 10
"""Most messages have fewer bytes, and are received at once."""
_PICKLED = 1 << 63
"""Added to the length of a message that MessagePack cannot represent."""
_encode = msgspec.msgpack.Encoder(enc_hook=str).encode
_decode = msgspec.msgpack.Decoder().decode


class Frames:
    """One end of a connection. Only one thread may send, and one may receive."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._rest = b""
        """Bytes that have been received behind the last message."""

    def send(self, message: Any) -> None:
        """Raises OSError if the other process has ended, and another error if the message cannot be sent."""
        try:
            data, mark = _encode(message), 0
        except Exception:  # a surrogate in a text, or a number of more than 64 bits
            data, mark = pickle.dumps(message), _PICKLED
        self._socket.sendall(b"".join(((len(data) | mark).to_bytes(_LENGTH), data)))

    def receive(self) -> Any:
        """Raises EOFError or OSError if the other process has ended."""
        data: bytes | bytearray = self._rest
        while len(data) < _LENGTH:
            data += self._some()
        length = int.from_bytes(data[:_LENGTH])
        end = _LENGTH + (length & ~_PICKLED)
        if len(data) < end:
            data = self._whole(data, end)
        self._rest = bytes(data[end:])
        body = memoryview(data)[_LENGTH:end]
        return pickle.loads(body) if length & _PICKLED else _decode(body)

    def shut(self) -> None:
        """Let both ends find that it has ended, after what is on its way."""
        with contextlib.suppress(OSError):  # it is closed
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()

    def _some(self) -> bytes:
        if not (data := self._socket.recv(_USUAL)):
            raise EOFError("the other process has ended")
        return data

    def _whole(self, begin: bytes | bytearray, size: int) -> bytearray:
        data = bytearray(size)
        data[: len(begin)] = begin
        left = memoryview(data)[len(begin) :]
        while left:
            read = self._socket.recv_into(left, 0, socket.MSG_WAITALL)
            if not read:
                raise EOFError("the other process has ended")
            left = left[read:]
        return data
