"""How a handler reports that a batch still runs behind `handle`, to be made durable with others."""

from __future__ import annotations


class AskAgain(Exception):
    """Raised by a handler that accepted the batch but does not know yet whether it is finished.

    The worker passes the same batch again after `seconds`, and the result of that call counts. This is not a
    failure: it uses up no attempt, and the thread serves other tables meanwhile. The batch may never be
    passed again, because its partition may be revoked or the worker may stop."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the answer is due in {seconds:.3f} s")
        self.seconds = seconds
