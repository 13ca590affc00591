"""The one shape of all services: starting, stopping, rounds and rests."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import math
import random
import weakref

import pytest

from pyasynq._background.rest import Rest
from pyasynq._background.service import Service, stop_services
from pyasynq._backoff import Backoff
from pyasynq.events import Events, LeaveFailed, RoundFailed, RoundFinished, ShutdownHung
from tests.run_async import run_async


class Counting(Service):
    """Counts what happens to it; rests until it is woken."""

    name = "counting"

    def __init__(self) -> None:
        super().__init__(Events())
        self.log: list[str] = []
        self.errors: list[Exception] = []
        self.round_begun = asyncio.Event()
        self.round_may_end = asyncio.Event()
        self.round_may_end.set()

    async def enter(self) -> None:
        self.log.append("enter")

    async def round(self) -> float:
        self.log.append("round")
        self.round_begun.set()
        await self.round_may_end.wait()
        if self.errors:
            raise self.errors.pop(0)
        return math.inf

    async def leave(self) -> None:
        self.log.append("leave")


async def next_round(service: Service) -> RoundFinished:
    """Wait for the end of the next round."""
    ended: asyncio.Future[RoundFinished] = asyncio.get_running_loop().create_future()
    unsubscribe = service.events.subscribe(
        RoundFinished,
        lambda event: None if ended.done() else ended.set_result(event),
    )
    service.wake()
    try:
        return await ended
    finally:
        unsubscribe()


@run_async
async def test_a_service_enters_once_works_in_rounds_and_leaves_once() -> None:
    """Enter, rounds, leave: in this order, however many rounds there are."""
    service = Counting()
    await service.start()
    await next_round(service)
    await next_round(service)
    await service.stop()
    assert ["enter", "leave"] == [service.log[0], service.log[-1]]
    assert {"round"} == set(service.log[1:-1])


@run_async
async def test_a_stop_cuts_the_rest_short_and_not_the_round() -> None:
    """Closing waits for the round that is going on."""
    service = Counting()
    service.round_may_end.clear()
    await service.start()
    await service.round_begun.wait()
    stopping = asyncio.create_task(service.stop())
    await asyncio.sleep(0)
    assert not stopping.done()
    service.round_may_end.set()
    await stopping
    assert ["enter", "round", "leave"] == service.log


@run_async
async def test_stopping_without_a_start_and_stopping_twice_do_nothing() -> None:
    """Stop is idempotent."""
    service = Counting()
    await service.stop()
    await service.start()
    await service.stop()
    await service.stop()
    assert 1 == service.log.count("leave")


@run_async
async def test_a_second_start_does_nothing() -> None:
    """Start is idempotent while the service runs."""
    service = Counting()
    await asyncio.gather(service.start(), service.start())
    await service.start()
    await service.stop()
    assert 1 == service.log.count("enter")


@run_async
async def test_a_stopped_service_can_be_started_again() -> None:
    """Start after stop enters again."""
    service = Counting()
    for _ in range(3):
        await service.start()
        await service.stop()
    assert 3 == service.log.count("enter") == service.log.count("leave")


@run_async
async def test_many_stops_at_once_all_wait_for_the_end() -> None:
    """Every caller of stop returns after leave."""
    service = Counting()
    await service.start()
    await asyncio.gather(*(service.stop() for _ in range(10)))
    assert "leave" == service.log[-1]


@run_async
async def test_a_cancelled_stop_does_not_undo_the_stop() -> None:
    """The service ends although its caller no longer waits."""
    service = Counting()
    service.round_may_end.clear()
    await service.start()
    await service.round_begun.wait()
    stopping = asyncio.create_task(service.stop())
    await asyncio.sleep(0)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    service.round_may_end.set()
    await service.stop()
    assert "leave" == service.log[-1]


@run_async
async def test_what_enter_raises_start_raises_and_nothing_runs() -> None:
    """A service that cannot begin is not running, and may be started again."""

    class Broken(Counting):
        async def enter(self) -> None:
            raise ValueError("no")

    service = Broken()
    with pytest.raises(ValueError, match="no"):
        await service.start()
    assert not service.running
    await service.stop()


@run_async
async def test_a_round_that_raises_becomes_an_event_and_a_rest() -> None:
    """The error is reported and the service goes on."""
    service = Counting()
    service.errors = [ValueError("broken")]
    failed: asyncio.Future[RoundFailed] = asyncio.get_running_loop().create_future()
    service.events.subscribe(RoundFailed, failed.set_result)
    await service.start()
    event = await failed
    assert "counting" == event.service
    assert "broken" == str(event.error)
    assert 0 < event.rest <= 0.1
    await next_round(service)
    await service.stop()


@run_async
async def test_what_a_failed_round_held_is_free_without_the_collector() -> None:
    """Its error came out of a list, as replies of Redis do, and the list was the round's."""

    class Held:
        pass

    class Failing(Counting):
        async def round(self) -> float:
            if references:
                return math.inf
            held = Held()
            references.append(weakref.ref(held))
            errors = [ValueError("broken")]
            raise errors[0]

    references: list[weakref.ref[Held]] = []
    service = Failing()
    gc.disable()
    try:
        await service.start()
        await next_round(service)
        assert references[0]() is None
    finally:
        gc.enable()
        await service.stop()


@run_async
async def test_a_bell_that_rings_during_a_round_ends_the_next_rest() -> None:
    """No wake-up is lost between two rounds."""
    service = Counting()
    service.round_may_end.clear()
    await service.start()
    await service.round_begun.wait()
    service.wake()
    service.round_begun.clear()
    service.round_may_end.set()
    await service.round_begun.wait()
    await service.stop()
    assert 2 == service.log.count("round")


@run_async
async def test_starts_and_stops_in_any_order_leave_nothing_behind() -> None:
    """Stress: random starts, stops and wakes, at once and in turn."""
    random_numbers = random.Random(7)
    service = Counting()
    for _ in range(300):
        action = random_numbers.choice(["start", "stop", "wake", "both", "yield"])
        if action == "start":
            await service.start()
        elif action == "stop":
            await service.stop()
        elif action == "wake":
            service.wake()
        elif action == "both":
            await asyncio.gather(service.start(), service.stop(), service.start(), service.stop())
        else:
            await asyncio.sleep(0)
    await service.stop()
    assert not service.running
    assert service.log.count("enter") == service.log.count("leave")


@run_async
async def test_the_bell_ends_a_rest_without_limit() -> None:
    """A rest of infinity ends with a wake-up."""
    rest = Rest()
    asyncio.get_running_loop().call_soon(rest.wake)
    await rest.sleep(math.inf)


@run_async
async def test_a_rest_ends_by_itself() -> None:
    """The time-out of a rest needs no wake-up."""
    await Rest().sleep(0.001)


def test_w21_rests_after_failures_grow_are_jittered_and_end_at_five_seconds() -> None:
    """A Redis that is away is not asked in a tight loop."""
    backoff = Backoff(shortest=0.1, longest=5.0)
    rests = [backoff.next() for _ in range(40)]
    assert all(0.05 <= rest <= 5.0 for rest in rests)
    assert rests[0] <= 0.1
    assert 2.5 <= rests[-1] <= 5.0
    assert len(set(rests)) > 30
    backoff.reset()
    assert backoff.next() <= 0.1


@run_async
async def test_stopping_services_stops_all_of_them_whatever_leaving_raises() -> None:
    """The error of one is an event, and the others leave too. (D19)"""

    class Failing(Counting):
        async def leave(self) -> None:
            await super().leave()
            raise ValueError("no")

    services: list[Counting] = [Counting(), Failing(), Counting()]
    failed: list[LeaveFailed] = []
    services[1].events.subscribe(LeaveFailed, failed.append)
    for service in services:
        await service.start()
    await stop_services(list(services), lambda: math.inf)
    assert ["leave"] * 3 == [service.log[-1] for service in services]
    assert ["counting"] == [event.service for event in failed]


@run_async
async def test_a_round_that_hangs_is_cancelled_and_told_at_the_end_of_its_time() -> None:
    """The service leaves all the same; the place in the event is the user's, not asyncio's. (D14)"""
    service = Counting()
    service.round_may_end.clear()
    hung: list[ShutdownHung] = []
    service.events.subscribe(ShutdownHung, hung.append)
    await service.start()
    await service.round_begun.wait()
    await service.stop(0.01)
    assert not service.running
    assert "leave" == service.log[-1]
    assert "the service 'counting'" == hung[0].what
    assert "Counting.round" in hung[0].where


@run_async
async def test_a_service_that_swallows_its_cancellation_is_left_behind() -> None:
    """Stop returns. (D14)"""
    may_end = asyncio.Event()

    class Stubborn(Counting):
        async def round(self) -> float:
            while not may_end.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    self.round_begun.set()
                    await may_end.wait()
            return math.inf

    service = Stubborn()
    await service.start()
    await service.round_begun.wait()
    task = service._task
    assert task is not None
    await service.stop(0.01)
    assert not task.done()
    may_end.set()
    await asyncio.wait({task})
