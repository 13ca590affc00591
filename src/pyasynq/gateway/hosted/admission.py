"""Admission of an instance's requests to a host, by the host's gate in Redis and by what it has said last.

Before the tasks of a lease begin, one call of Redis asks for all of them together.
Its answer also tells how many tasks to lease next, and when: few leased tasks have to be put back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
import secrets
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyasynq._visible_text import visible
from pyasynq.control import Retry
from pyasynq.errors import PyasynqError

from .outcome import PutBack, Throttled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq.operations import GateAnswer, HostGate

    from .outcome import HostedOutcome

_log = logging.getLogger("pyasynq.gateway")

_RENEW_SECONDS: Final = 10.0
"""Seconds between two renewals of slots, which lapse after 30 s: one of them may fail."""
_FULL_SECONDS: Final = 0.5
"""Seconds until the next look at a host whose slots other instances hold."""
_GATHER_SECONDS: Final = 0.05
"""Seconds for which tokens gather, so that a high rate does not cost a lease for each task."""
_UNKNOWN_SECONDS: Final = 5.0
"""Seconds for which tasks are put off while Redis does not say whether they may begin."""
_STEP_SECONDS: Final = 1.0
"""Seconds until the window of a host that was throttled doubles (slow start)."""
_STEPS: Final = 7
"""Number of steps after which it has no window any more: the next one would be above an instance's slots."""
_SPREAD: Final = 0.1
"""Share of a wait by which tasks are put off further, at random."""
_LEAST_SPREAD: Final = 1.0
_MOST_SPREAD: Final = 60.0


@dataclass(frozen=True, slots=True)
class AdmittedRequests:
    """Which of some requests begin: the first ones.

    Attributes:
        ids: ids of the requests that begin, in the order of their tasks.
        refusal: outcome of the other tasks.
    """

    ids: Sequence[str]
    refusal: HostedOutcome | Throttled = None


class HostAdmission:
    """Admits the requests of an instance to one host. Belongs to one event loop.

    Args:
        gate: gate of the host.
    """

    def __init__(self, gate: HostGate) -> None:
        self._gate = gate
        self._instance = secrets.token_hex(8)
        self._number = 0
        self._held: set[str] = set()
        """Ids of the requests that hold a slot."""
        self._renewing: asyncio.Task[None] | None = None
        self._closed_until = 0.0
        """Time of the loop until which no request is going to be admitted."""
        self._throttled_until = -math.inf
        """Time of the loop until which the host has asked to be left alone, as far as is known."""
        self._tokens = 0.0 if gate.rate is None else float(gate.rate.burst)
        self._told_at = 0.0
        """Time of the loop at which the bucket had these tokens."""
        self._has_failed = False

    def find_window(self, now: float) -> int:
        """Return how many requests may run at once at a time of the loop (slow start).

        After a throttling it is one, and doubles each second: a host that is called by all its tasks at once
        would ask for the next pause.
        """
        passed = max(0.0, now - self._throttled_until)
        return sys.maxsize if passed >= _STEPS * _STEP_SECONDS else 2 ** int(passed / _STEP_SECONDS)

    def find_step(self, now: float) -> float | None:
        """Return for how many seconds from a time of the loop the window stays; None for ever."""
        passed = max(0.0, now - self._throttled_until)
        return None if passed >= _STEPS * _STEP_SECONDS else _STEP_SECONDS - passed % _STEP_SECONDS

    def note_throttled(self, seconds: float) -> None:
        """Pause for some seconds, and begin slowly afterwards."""
        until = asyncio.get_running_loop().time() + seconds
        self._throttled_until = max(self._throttled_until, until)
        self.pause(seconds)

    @property
    def is_throttled(self) -> bool:
        """Whether the host has asked to be left alone for a time that is not over."""
        return asyncio.get_running_loop().time() < self._throttled_until

    def count_tokens(self, now: float) -> int:
        """Return how many requests the rate is going to admit at a time of the loop, as far as is known."""
        rate = self._gate.rate
        if rate is None:
            return sys.maxsize
        gained = (now - self._told_at) * rate.requests / rate.period
        return int(min(rate.burst, self._tokens + gained))

    def find_pause(self, now: float) -> float:
        """Return for how many seconds from a time of the loop no task is worth a lease; 0 for none."""
        pause = max(0.0, self._closed_until - now)
        rate = self._gate.rate
        if rate is not None and self.count_tokens(now) < 1:
            interval = rate.period / rate.requests
            next_token = self._told_at + (1 - self._tokens) * interval - now
            gather = min(_GATHER_SECONDS, interval * rate.burst / 2)
            pause = max(pause, next_token, gather)
        return pause

    async def admit(self, number: int) -> AdmittedRequests:
        """Ask the gate for a number of requests, and remember what it says of the next ones."""
        first = self._number
        self._number += number
        ids = [f"{self._instance}:{place}" for place in range(first, first + number)]
        loop = asyncio.get_running_loop()
        try:
            answer = await self._gate.enter(ids)
        except PyasynqError as error:
            return self._refuse_unknown(error)
        self._has_failed = False
        self._remember(answer, number, loop.time())
        admitted = ids[: answer.admitted]
        if self._gate.concurrency is not None and admitted:
            self._held.update(admitted)
            if self._renewing is None or self._renewing.done():
                self._renewing = asyncio.create_task(self._renew(), name="pyasynq hosted slots")
        if answer.throttled:
            reason = f"the host {self._gate.host} has asked to be left alone"
            return AdmittedRequests((), Throttled(answer.throttled, reason))
        return AdmittedRequests(admitted, PutBack())

    def _refuse_unknown(self, error: PyasynqError) -> AdmittedRequests:
        if not self._has_failed:
            _log.warning(
                "requests to %s wait: Redis does not say whether they may begin: %s",
                visible(self._gate.host),
                visible(error),
            )
        self._has_failed = True
        self.pause(_UNKNOWN_SECONDS)
        return AdmittedRequests(
            (), put_off(_UNKNOWN_SECONDS, "the limits of the host cannot be read from Redis")
        )

    def _remember(self, answer: GateAnswer, number: int, now: float) -> None:
        """Remember when the next requests are worth asking for."""
        if answer.throttled:
            self.note_throttled(answer.throttled)
            return
        rate = self._gate.rate
        if rate is not None:
            self._tokens = float(answer.left)
            if answer.wait:
                self._tokens = 1 - answer.wait * rate.requests / rate.period
            self._told_at = now
        if answer.admitted < number and not answer.wait:
            # Other instances hold the slots.
            pause = _FULL_SECONDS * random.uniform(0.5, 1.5)  # noqa: S311 - spreads load
            self._closed_until = max(self._closed_until, now + pause)

    def pause(self, seconds: float) -> None:
        """Ask for no request for some seconds, and a little longer. A later end that was set before stays."""
        until = asyncio.get_running_loop().time() + seconds
        self._closed_until = max(self._closed_until, until + _spread(seconds, most=_LEAST_SPREAD))

    async def close_gate(self, seconds: float) -> None:
        """Tell all instances that the host asks to be left alone for some seconds."""
        try:
            await self._gate.close_for(seconds)
        except PyasynqError as error:
            _log.warning(
                "other instances do not know that %s asks to be left alone: %s",
                visible(self._gate.host),
                visible(error),
            )

    async def release(self, request_id: str) -> None:
        """Give the slot of a request back, if it has one. A slot that stays, as Redis is away, lapses."""
        if request_id in self._held:
            self._held.discard(request_id)
            with contextlib.suppress(PyasynqError):
                await self._gate.release(request_id)

    async def _renew(self) -> None:
        while self._held:
            await asyncio.sleep(_RENEW_SECONDS)
            held = list(self._held)
            if not held:
                return
            try:
                await self._gate.renew(held)
            except PyasynqError as error:
                _log.debug("slots of %s were not renewed: %s", visible(self._gate.host), visible(error))

    async def close(self) -> None:
        """End the renewals."""
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait({self._renewing})


def put_off(seconds: float, reason: str) -> Retry:
    """Return the outcome of a task that a host does not take now: later, at a random moment, for no retry."""
    return Retry(seconds + _spread(seconds, most=_MOST_SPREAD), reason=reason, spend=False)


def _spread(seconds: float, *, most: float) -> float:
    """Return random seconds, so that those who wait do not come together (thundering herd)."""
    longest = min(most, max(_LEAST_SPREAD, seconds * _SPREAD))
    return random.uniform(0, longest)  # noqa: S311 - spreads load
