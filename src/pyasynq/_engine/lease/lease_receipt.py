"""Lease receipts: proof of a lease, usable from any process."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from pyasynq._clock import LAST_SECOND
from pyasynq.errors import InvalidOptionError

if TYPE_CHECKING:
    from pyasynq._engine.run.attempt import Attempt

_SECOND: Final = re.compile("[0-9]{1,12}")


class Receipt(NamedTuple):
    """Proof of a lease. Its text form has three parts: token, end of the lease, and deadline.

    The two times are Unix times in whole seconds.

    A token names the dequeue call, not the attempt: all tasks of one call share it. With queue and id it
    names one attempt. A program that hands tasks of one take to several workers needs receipts of its own.
    It must bind them to queue, id and worker, for example by a signature.
    """

    token: str
    lease_end: int
    """Unix time of the end of the lease, as far as its holder knows."""
    deadline: int
    """Unix time at which the attempt is cancelled."""

    @classmethod
    def of(cls, attempt: Attempt) -> Self:
        """Return the receipt for an attempt that has begun."""
        assert attempt.deadline_at is not None  # noqa: S101 - `begin` sets it
        return cls(attempt.token, attempt.lease_end, int(attempt.deadline_at))

    @classmethod
    def parse(cls, text: object) -> Self:
        """Parse a receipt.

        Raises:
            InvalidOptionError: if the text is not a receipt.
        """
        token, *times = text.rsplit("/", 2) if isinstance(text, str) else ("",)
        if len(times) == 2 and token and all(map(_SECOND.fullmatch, times)):
            receipt = cls(token, *map(int, times))
            if max(receipt.lease_end, receipt.deadline) <= LAST_SECOND:
                return receipt
        raise InvalidOptionError("receipt", text, "must be the receipt of an attempt, unchanged")

    def __str__(self) -> str:
        return "/".join(map(str, self))
