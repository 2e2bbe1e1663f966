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
        connected.settimeout(None)  # whatever limit a handler has set for all sockets of its process
        self.last = False
        """The message in progress is the last one."""
        self._rest = b""
        """Bytes that have been received behind the last message."""

    def send(self, message: Any) -> None:
        """Raises OSError if the other process has ended, and another error if the message cannot be sent."""
        try:
            data, mark = _encode(message), 0
        except Exception:  # a surrogate in a text, or a number of more than 64 bits
            # Plain values only: the other process may be unable to make an object of a handler's class.
            plain = msgspec.to_builtins(message, enc_hook=str, builtin_types=(bytes,))
            data, mark = pickle.dumps(plain), _PICKLED
        head = (len(data) | mark).to_bytes(_LENGTH)
        # Large data is not copied once more.
        for part in (head + data,) if len(data) <= _USUAL else (head, data):
            self._socket.sendall(part)

    def receive(self) -> Any:
        """Raises EOFError or OSError if the other process has ended."""
        data = self._rest
        while len(data) < _LENGTH:
            data += self._some(_USUAL)
        length = int.from_bytes(data[:_LENGTH])
        end = _LENGTH + (length & ~_PICKLED)
        while len(data) < end:
            data += self._some(end - len(data), socket.MSG_WAITALL)
        self._rest = data[end:]
        body = memoryview(data)[_LENGTH:end]
        return pickle.loads(body) if length & _PICKLED else _decode(body)

    def shut(self) -> None:
        """Let both ends find that it has ended, after what is on its way."""
        with contextlib.suppress(OSError):  # it is closed
            self._socket.shutdown(socket.SHUT_RDWR)

    def end_requests(self) -> None:
        """Send no more, but receive. The other end finds that by `is_over`. Any thread."""
        self.last = True
        with contextlib.suppress(OSError):  # it is closed
            self._socket.shutdown(socket.SHUT_WR)

    @property
    def is_over(self) -> bool:
        """Whether the other end sends no more."""
        try:
            return not self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        self._socket.close()

    def _some(self, most: int, flags: int = 0) -> bytes:
        if not (data := self._socket.recv(most, flags)):
            raise EOFError("the other process has ended")
        return data
