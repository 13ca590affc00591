"""Admission control of one instance's requests to a host: concurrency, rate and throttling.

The host's gate in Redis applies the limits over all instances. One call requests admission for all tasks of a
lease. The answer also decides how many tasks the next lease may take, and when. So few leased tasks are put
back.
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
"""Seconds between two renewals of slots. A slot expires after 30 s, so one renewal may fail."""
_FULL_SECONDS: Final = 0.5
"""Seconds until the next request for admission while other instances hold all slots of the host."""
_GATHER_SECONDS: Final = 0.05
"""Minimum pause in seconds while the token bucket is empty.

At a high rate several tokens gather in this time, so that one lease takes several tasks.
"""
_UNKNOWN_SECONDS: Final = 5.0
"""Seconds for which tasks are put off while Redis cannot be asked for admission."""
_STEP_SECONDS: Final = 1.0
"""Seconds until the slow-start window of a throttled host doubles.

The window is the number of requests that may run at once.
"""
_STEPS: Final = 7
"""Number of steps of slow start; each doubles the window.

After one more step, the window would exceed the slots of an instance.
"""
_SPREAD: Final = 0.1
"""Maximum jitter of a task that is put off, as a fraction of its delay."""
_LEAST_SPREAD: Final = 1.0
_MOST_SPREAD: Final = 60.0


@dataclass(frozen=True, slots=True)
class AdmittedRequests:
    """Answer to a request for admission: the first requests may begin, the others are refused.

    Attributes:
        ids: ids of the admitted requests, in the order of their tasks.
        refusal: outcome of the other tasks.
    """

    ids: Sequence[str]
    refusal: HostedOutcome | Throttled = None


class HostAdmission:
    """Admission control for the requests of an instance to one host. Belongs to one event loop.

    Args:
        gate: gate of the host in Redis, which limits the requests of all instances together.
    """

    def __init__(self, gate: HostGate) -> None:
        self._gate = gate
        self._instance = secrets.token_hex(8)
        self._number = 0
        self._held: set[str] = set()
        """Ids of the requests that hold a slot."""
        self._renewing: asyncio.Task[None] | None = None
        self._closed_until = 0.0
        """Time of the event loop until which no request will be admitted."""
        self._throttled_until = -math.inf
        """Time of the event loop at which the last known pause of the host (429 or 503) ends."""
        self._tokens = 0.0 if gate.rate is None else float(gate.rate.burst)
        self._told_at = 0.0
        """Time of the event loop at which the token bucket had `_tokens` tokens."""
        self._has_failed = False

    def find_window(self, now: float) -> int:
        """Return how many requests may run at once (slow-start window), at this time of the event loop.

        After the host has throttled requests, the window is 1 and doubles each second. All tasks at once
        would overload the host again.
        """
        passed = max(0.0, now - self._throttled_until)
        return sys.maxsize if passed >= _STEPS * _STEP_SECONDS else 2 ** int(passed / _STEP_SECONDS)

    def find_step(self, now: float) -> float | None:
        """Return the seconds until the slow-start window grows; None if it does not grow any more."""
        passed = max(0.0, now - self._throttled_until)
        return None if passed >= _STEPS * _STEP_SECONDS else _STEP_SECONDS - passed % _STEP_SECONDS

    def note_throttled(self, seconds: float) -> None:
        """Record that the host asks for a pause of some seconds; slow start begins after it."""
        until = asyncio.get_running_loop().time() + seconds
        self._throttled_until = max(self._throttled_until, until)
        self.pause(seconds)

    @property
    def is_throttled(self) -> bool:
        """Whether the host has asked for a pause (429 or 503) that is not over."""
        return asyncio.get_running_loop().time() < self._throttled_until

    def count_tokens(self, now: float) -> int:
        """Estimate how many tokens are in the host's token bucket, at this time of the event loop."""
        rate = self._gate.rate
        if rate is None:
            return sys.maxsize
        gained = (now - self._told_at) * rate.requests / rate.period
        return int(min(rate.burst, self._tokens + gained))

    def find_pause(self, now: float) -> float:
        """Return the seconds in which no task is leased, because its request would be refused; 0 for none."""
        pause = max(0.0, self._closed_until - now)
        rate = self._gate.rate
        if rate is not None and self.count_tokens(now) < 1:
            interval = rate.period / rate.requests
            next_token = self._told_at + (1 - self._tokens) * interval - now
            gather = min(_GATHER_SECONDS, interval * rate.burst / 2)
            pause = max(pause, next_token, gather)
        return pause

    async def admit(self, number: int) -> AdmittedRequests:
        """Ask the gate to admit this many requests, and record its answer for the next leases."""
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
        """Record the gate's answer: the tokens left, and the time until which nothing is admitted."""
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
        """Lease no task for some seconds plus jitter. An earlier pause that ends later is kept."""
        until = asyncio.get_running_loop().time() + seconds
        self._closed_until = max(self._closed_until, until + _spread(seconds, most=_LEAST_SPREAD))

    async def close_gate(self, seconds: float) -> None:
        """Close the host's gate in Redis for some seconds, so that all instances pause."""
        try:
            await self._gate.close_for(seconds)
        except PyasynqError as error:
            _log.warning(
                "other instances do not know that %s asks to be left alone: %s",
                visible(self._gate.host),
                visible(error),
            )

    async def release(self, request_id: str) -> None:
        """Release the concurrency slot of a request. If Redis cannot be reached, the slot expires."""
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
        """Stop renewing the concurrency slots."""
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait({self._renewing})


def put_off(seconds: float, reason: str) -> Retry:
    """Return the outcome of a task whose request may not begin now: a retry after a delay with jitter.

    The retry is not counted.
    """
    return Retry(seconds + _spread(seconds, most=_MOST_SPREAD), reason=reason, spend=False)


def _spread(seconds: float, *, most: float) -> float:
    """Return jitter in seconds, so that delayed tasks do not all start at once (thundering herd)."""
    longest = min(most, max(_LEAST_SPREAD, seconds * _SPREAD))
    return random.uniform(0, longest)  # noqa: S311 - spreads load
