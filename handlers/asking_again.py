"""How a handler says that a batch is under way behind `handle`, where many are made durable together."""

from __future__ import annotations


class AskAgain(Exception):
    """Raised by a handler that has taken the batch and does not know yet whether it is done.

    The same batch is handed to it again after `seconds`, and what that call answers counts. It is no failure:
    no attempt is used up, and the thread is free for other tables meanwhile. The batch may never come again:
    its partition may leave, and the worker may end."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"it is known in {seconds:.3f} s")
        self.seconds = seconds
