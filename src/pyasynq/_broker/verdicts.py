"""Verdicts: ends of leased attempts, kept for holders that ask or settle again later."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from pyasynq._clock import Instant

LEASED: Final = "/leased"
"""Suffix of the token of a dequeue call whose tasks are leased to remote workers."""

SAID_SECONDS: Final = 60
"""Seconds for which a verdict given by the holder is kept: enough to repeat a settle whose reply was lost."""

DECIDED_SECONDS: Final = 600
"""Seconds for which a verdict made without the holder is kept: the holder may ask minutes later."""


class Verdict(enum.StrEnum):
    """The end of a leased attempt; the values are stored in Redis."""

    DONE = "done"
    RETRY = "retry"
    SNOOZE = "snooze"
    ARCHIVE = "archive"
    CANCEL = "cancel"
    REQUEUE = "requeue"
    CRASHED = "crashed"
    TIMED_OUT = "timed-out"
    CANCELED_RETRY = "canceled-retry"
    CANCELED_ARCHIVE = "canceled-archive"
    CANCELED_DELETE = "canceled-delete"
    LOST = "lost"

    @property
    def by_holder(self) -> bool:
        """Whether the holder settled the attempt."""
        return self in _BY_HOLDER


_BY_HOLDER: Final = frozenset(
    {
        Verdict.DONE,
        Verdict.RETRY,
        Verdict.SNOOZE,
        Verdict.ARCHIVE,
        Verdict.CANCEL,
        Verdict.REQUEUE,
        Verdict.CRASHED,
    }
)


class VerdictNote(NamedTuple):
    """The verdict that a settle call writes for all its attempts; empty for attempts of workers.

    Attributes:
        verdict: the value of a `Verdict`.
        forget_at: Unix second until which it is kept.
    """

    verdict: str
    forget_at: int | str


NO_NOTE: Final = VerdictNote("", "")


def make_note(verdict: Verdict | None, now: Instant) -> VerdictNote:
    """Return the note for attempts settled now with this verdict; None is for attempts of workers."""
    if verdict is None:
        return NO_NOTE
    return VerdictNote(verdict, now.seconds + (SAID_SECONDS if verdict.by_holder else DECIDED_SECONDS))


def is_leased(token: str) -> bool:
    """Return whether the attempts with this token are leased to a remote worker (`Consumer.lease`)."""
    return token.endswith(LEASED)
