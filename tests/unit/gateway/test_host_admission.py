"""What an instance remembers of a host's gate: when to lease its next tasks, and how many."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pytest

from pyasynq.gateway.hosted.admission import HostAdmission, put_off
from pyasynq.gateway.hosted.outcome import PutBack, Throttled
from pyasynq.operations import GateAnswer
from pyasynq.operations.request_rate import parse_request_rate
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq.operations import HostGate, RequestRate


@dataclass
class Gate:
    """A gate that answers as a test says."""

    answers: list[GateAnswer]
    host: str = "a.example"
    rate: RequestRate | None = None
    concurrency: int | None = None
    entered: list[Sequence[str]] = field(default_factory=list)
    released: list[str] = field(default_factory=list)

    async def enter(self, ids: Sequence[str]) -> GateAnswer:
        """Answer."""
        self.entered.append(ids)
        return self.answers.pop(0)

    async def close_for(self, seconds: float) -> None:
        """Stay as it is: the answers are those of the test."""

    async def release(self, request_id: str) -> None:
        """Note which slot is given back."""
        self.released.append(request_id)


def make(*answers: GateAnswer, **limits: Any) -> tuple[HostAdmission, Gate]:
    """Return the admission of a host whose gate answers so."""
    gate = Gate(list(answers), **limits)
    return HostAdmission(cast("HostGate", gate)), gate


TEN_A_SECOND = parse_request_rate("rate", "10/s+4")


@run_async
async def test_a_host_without_limits_has_no_pause() -> None:
    """Its instance leases as many tasks as it has slots."""
    admission, gate = make(GateAnswer(3, 0, 0, 0))
    admitted = await admission.admit(3)
    now = asyncio.get_running_loop().time()
    assert (gate.entered[0], 0.0) == (admitted.ids, admission.find_pause(now))
    assert admission.count_tokens(now) > 1_000
    await admission.release(admitted.ids[0])
    assert [] == gate.released


@run_async
async def test_tokens_come_back_at_the_rate() -> None:
    """Up to the burst; the pause ends when there is one."""
    admission, _ = make(GateAnswer(4, 0, 0.06, 0), rate=TEN_A_SECOND)
    assert 4 == admission.count_tokens(1_000.0)
    await admission.admit(4)
    now = admission._told_at
    assert (0, 0) == (admission.count_tokens(now), admission.count_tokens(now + 0.05))
    assert [0.06, 0.05] == [pytest.approx(admission.find_pause(now + passed)) for passed in (0, 0.02)]
    assert [1, 1, 2, 4] == [admission.count_tokens(now + passed) for passed in (0.07, 0.15, 0.17, 60)]
    assert 0.0 == admission.find_pause(now + 0.07)


@run_async
async def test_a_high_rate_does_not_cost_a_lease_for_each_token() -> None:
    """Tokens gather for a moment, but no more of them than the bucket holds."""
    waits = []
    for text in ("1000/s+100", "1000/s+10"):
        admission, _ = make(GateAnswer(1, 0, 0.001, 0), rate=parse_request_rate("rate", text))
        await admission.admit(1)
        waits.append(admission.find_pause(admission._told_at))
    assert [0.05, 0.005] == waits


@run_async
async def test_the_host_is_looked_at_again_soon_when_others_hold_its_slots() -> None:
    """The tasks go back to their queue."""
    admission, gate = make(GateAnswer(1, 0, 0, 0), concurrency=5)
    admitted = await admission.admit(3)
    assert (gate.entered[0][:1], PutBack()) == (admitted.ids, admitted.refusal)
    assert 0.2 < admission.find_pause(asyncio.get_running_loop().time()) <= 0.75
    await admission.release(admitted.ids[0])
    await admission.release(admitted.ids[0])
    assert admitted.ids == gate.released
    await admission.close()


@run_async
async def test_tasks_of_a_throttled_host_are_put_off() -> None:
    """All of them, and the next ones are not leased."""
    admission, _ = make(GateAnswer(0, 7.5, 0, 0), concurrency=5)
    admitted = await admission.admit(2)
    assert () == admitted.ids
    assert Throttled(7.5, "the host a.example has asked to be left alone") == admitted.refusal
    assert admission.is_throttled
    assert 7 < admission.find_pause(asyncio.get_running_loop().time()) <= 8.5


@run_async
async def test_a_host_that_was_throttled_is_called_by_and_by() -> None:
    """One request at once at first; the window doubles each second, until it is wider than an instance."""
    admission, _ = make(GateAnswer(0, 7.5, 0, 0))
    assert (sys.maxsize, None) == (admission.find_window(0.0), admission.find_step(0.0))
    await admission.admit(2)
    end = admission._throttled_until
    moments = (-5.0, 0.0, 0.9, 1.0, 2.5, 6.9)
    assert [1, 1, 1, 2, 4, 64] == [admission.find_window(end + one) for one in moments]
    steps = [admission.find_step(end + one) for one in moments]
    assert [1.0, 1.0, 0.1, 1.0, 0.5, 0.1] == [pytest.approx(step) for step in steps]
    assert (sys.maxsize, None) == (admission.find_window(end + 7.1), admission.find_step(end + 7.1))
    admission.note_throttled(600)
    assert 1 == admission.find_window(end + 7.1)


@run_async
async def test_a_pause_without_a_throttling_needs_no_slow_start() -> None:
    """Redis did not answer: the host itself has asked for nothing."""
    admission, _ = make()
    admission.pause(5)
    assert sys.maxsize == admission.find_window(asyncio.get_running_loop().time())


@run_async
async def test_the_end_of_a_throttling_is_not_forgotten_for_an_earlier_one() -> None:
    """Another batch that was asked for before hears of full slots."""
    admission, _ = make(GateAnswer(0, 0, 0, 0), concurrency=5)
    admission.pause(600)
    await admission.admit(1)
    admission.pause(5)
    assert not admission.is_throttled
    assert 590 < admission.find_pause(asyncio.get_running_loop().time()) <= 601


@run_async
async def test_a_host_is_throttled_until_the_last_moment_that_it_has_named() -> None:
    """Also for the metrics; full slots alone are not a throttling."""
    admission, _ = make()
    admission.note_throttled(600)
    admission.note_throttled(0)
    assert admission.is_throttled
    other, _ = make(GateAnswer(0, 0, 0, 0), concurrency=5)
    await other.admit(1)
    other.note_throttled(0)
    assert not other.is_throttled


@run_async
async def test_no_two_requests_have_one_id() -> None:
    """Also those of two instances."""
    answers = [GateAnswer(0, 0, 0, 0)] * 2
    gates = [make(*answers) for _ in range(2)]
    for admission, _ in gates:
        await admission.admit(3)
        await admission.admit(3)
    assert 12 == len({one for _, gate in gates for ids in gate.entered for one in ids})


@pytest.mark.parametrize(("seconds", "most"), [(0, 1), (5, 6), (100, 110), (3_600, 3_660)])
def test_tasks_are_put_off_to_different_moments(seconds: float, most: float) -> None:
    """Never before the host may be called, and none long after it."""
    delays = {float(cast("float", put_off(seconds, "busy").after)) for _ in range(100)}
    assert len(delays) > 90
    assert seconds <= min(delays) <= max(delays) <= most
