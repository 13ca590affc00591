"""Outcomes that Redis has not confirmed, and batches of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq._broker.settle import Claim
from pyasynq._engine.run.outcome import DONE, Complete, Decision
from pyasynq._engine.settle.settle_record import NOTHING, Written
from pyasynq.errors import PyasynqError, RedisReplyError, RedisValueTooLargeError, ReplyLostError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyasynq._broker.settle import Settled
    from pyasynq._engine.run.attempt import Attempt
    from pyasynq._redis.plan import Plan

SUSPECT_BYTES: Final = 65_536
"""A call of less than this is never why a connection broke."""


class Entry:
    """One outcome that Redis has not confirmed.

    Attributes:
        sent: whether a call with it may have taken effect; then a refusal means that it did.
        suspect: whether its last error may be its own, so that it is sent alone from then on.
        refusals: number of times it was refused alone while Redis answered other calls.
        refused_at: monotonic time of the last of these.
        final: whether nothing smaller can be written instead of it.
    """

    __slots__ = ("attempt", "decision", "final", "refusals", "refused_at", "sent", "suspect", "written")

    def __init__(
        self, attempt: Attempt, decision: Decision, written: Written, *, final: bool = False
    ) -> None:
        self.attempt = attempt
        self.decision = decision
        self.written = written
        self.sent = False
        self.suspect = False
        self.refusals = 0
        self.refused_at = float("-inf")
        self.final = final

    @property
    def claim(self) -> Claim:
        """The proof of ownership, as of now: the heartbeat moves the lease forward."""
        return Claim(self.attempt.id, self.attempt.token, self.attempt.lease_score)

    @property
    def size(self) -> int:
        """Bytes of what is to be written."""
        decision = self.decision
        result = decision.result if isinstance(decision, Complete) else None
        return sum(map(len, self.written)) + len(result or b"")

    def may_be_blamed(self, error: Exception) -> bool:
        """Return whether an error may be due to this outcome, and not to the state of Redis or the network.

        An error reply may be, and what is none of pyasynq's errors. A connection that broke may be when
        something large was sent: a server or a proxy in front of it may close it without a word.
        """
        if isinstance(error, ReplyLostError):
            return self.size >= SUSPECT_BYTES
        # Among its siblings are a full Redis, a missing right, and a time-out: all of them pass.
        return isinstance(error, RedisReplyError) or not isinstance(error, PyasynqError)


def is_final(error: Exception) -> bool:
    """Return whether Redis has said that it will never take what was sent."""
    return isinstance(error, RedisValueTooLargeError)


class Batch(NamedTuple):
    """Outcomes of one queue and one kind, and the plan that writes them.

    Attributes:
        entries: the outcomes; empty for attempts that are done, and sent for the first time.
        in_steps: the plan takes several calls: others sent at the same time see the state in between.
    """

    queue: str
    attempts: Sequence[Attempt]
    plan: Plan[Settled]
    entries: Sequence[Entry] = ()
    in_steps: bool = False


def done_entries(attempts: Iterable[Attempt]) -> list[Entry]:
    """Return the outcomes of attempts that are done."""
    return [Entry(attempt, DONE, NOTHING) for attempt in attempts]
