from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from pyasynq._broker.enqueueing.coalesce_async import EnqueueBatcher
from pyasynq._broker.enqueueing.coalesce_blocking import BlockingEnqueueBatcher
from pyasynq._broker.enqueueing.compose import Composed, compose
from pyasynq._clock import SYSTEM_CLOCK
from pyasynq._redis.driver import AsyncDriver
from pyasynq._redis.exchange import advance
from pyasynq._redis.plan import ScriptCall
from pyasynq._redis.url import RedisTarget
from pyasynq.errors import RedisUnavailableError, ReplyLostError
from pyasynq.task import EnqueueResult, EnqueueStatus, Task

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from pyasynq._redis.plan import Plan


def task(payload: bytes = b"") -> Composed:
    """Compose a task."""
    return compose(Task("t", payload), {}, now=SYSTEM_CLOCK.now())


def status(result: EnqueueResult | None) -> EnqueueStatus:
    """Return the outcome of a task."""
    return EnqueueStatus.ENQUEUED if result is None else result.status


async def enqueue(batcher: EnqueueBatcher, composed: Composed) -> EnqueueStatus:
    """Enqueue a task as one of many coroutines."""
    return status(await batcher.enqueue(composed))


class Answer(NamedTuple):
    """Outcomes of plans, and the numbers of their tasks."""

    outcomes: list[Any]
    tasks: int


def answer(plans: Sequence[Plan[Any]], refused: Sequence[int] = ()) -> Answer:
    """Run enqueue plans on a server that finds the ids at these places taken."""
    tasks = 0
    rounds = advance(plans)
    try:
        calls = next(rounds)
        while True:
            replies: list[Any] = []
            for call in calls:
                messages = call.args[5::2] if isinstance(call, ScriptCall) else ()
                tasks += len(messages)
                replies.append([one for place in refused if place < len(messages) for one in (place, 0, b"")])
            calls = rounds.send(replies)
    except StopIteration as stop:
        return Answer(list(stop.value), tasks)


class WaitingDriver(AsyncDriver):
    """An asyncio driver whose batches are answered when the test lets them."""

    def __init__(self, timeout: float = 5.0) -> None:
        super().__init__(RedisTarget(), timeout=timeout)
        self.batches: list[int] = []
        self.open = asyncio.Event()
        self.error: Exception | None = None
        self.refused: Sequence[int] = ()
        self.started: list[asyncio.Task[Any]] = []

    def start_task(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        self.started.append(super().start_task(work))
        return self.started[-1]

    async def run_unshielded(self, plans: Sequence[Plan[Any]]) -> list[Any]:
        position = len(self.batches)
        self.batches.append(0)
        await self.open.wait()
        if self.error is not None:
            raise self.error
        outcomes, self.batches[position] = answer(plans, self.refused)
        return outcomes


async def settle_down() -> None:
    """Let everything run that can."""
    for _ in range(10):
        await asyncio.sleep(0)


def batcher_of(driver: WaitingDriver, **settings: int) -> EnqueueBatcher:
    """Make a batcher over a driver of the test."""
    return EnqueueBatcher(driver, SYSTEM_CLOCK, **settings)


def test_what_is_asked_while_a_batch_is_on_its_way_leaves_together() -> None:
    """One alone, then all the others at once, without a timer."""

    async def run() -> None:
        driver = WaitingDriver()
        batcher = batcher_of(driver)
        calls = [asyncio.create_task(enqueue(batcher, task()))]
        await settle_down()
        calls += [asyncio.create_task(enqueue(batcher, task())) for _ in range(31)]
        await settle_down()
        driver.open.set()
        assert {EnqueueStatus.ENQUEUED} == {*await asyncio.gather(*calls)}
        assert [1, 31] == driver.batches

    asyncio.run(run())


def test_one_half_of_many_calls_is_with_redis_while_the_callers_of_the_other_go_on() -> None:
    """Two batches are on their way; of tasks that replicas are to have, one with all that wait.

    The name of the queue goes alone, so that replicas confirm nothing but tasks.
    """

    async def run(*, durable: bool) -> list[int]:
        driver = WaitingDriver()
        batcher = batcher_of(driver, durable=durable)
        first = asyncio.create_task(enqueue(batcher, task()))
        await settle_down()
        calls = [asyncio.create_task(enqueue(batcher, task())) for _ in range(99)]
        await settle_down()
        under_way = len(driver.batches)
        driver.open.set()
        assert {EnqueueStatus.ENQUEUED} == {*await asyncio.gather(first, *calls)}
        return [under_way, *driver.batches]

    assert [2, 1, 50, 32, 17] == asyncio.run(run(durable=False))
    assert [1, 1, 0, 99] == asyncio.run(run(durable=True))


@pytest.mark.parametrize(("limits", "size"), [({"max_calls": 3}, 0), ({"max_bytes": 3_500}, 1_000)])
def test_h20_callers_wait_outside_while_redis_is_away(limits: dict[str, int], size: int) -> None:
    """Three are taken in, by number or by bytes; the others wait and go on when there is room."""

    async def run() -> None:
        driver = WaitingDriver()
        batcher = batcher_of(driver, **limits)
        calls = [asyncio.create_task(enqueue(batcher, task(b"x" * size))) for _ in range(9)]
        await settle_down()
        queue = batcher._queues.here()[""]
        assert 6 == len(queue.outside)
        driver.open.set()
        assert {EnqueueStatus.ENQUEUED} == {*await asyncio.gather(*calls)}
        assert [3, 3, 3] == driver.batches
        assert 0 == queue.room.calls == queue.room.bytes

    asyncio.run(run())


def test_h20_who_waits_outside_for_too_long_gets_an_error() -> None:
    """It says how much is waiting; those inside are not concerned, and room is found again later."""

    async def run() -> None:
        driver = WaitingDriver(timeout=0.05)
        batcher = batcher_of(driver, max_calls=1)
        inside = asyncio.create_task(enqueue(batcher, task()))
        await settle_down()
        with pytest.raises(RedisUnavailableError, match="1 call "):
            await batcher.enqueue(task())
        driver.open.set()
        assert EnqueueStatus.ENQUEUED is await inside
        assert await batcher.enqueue(task()) is None

    asyncio.run(run())


def test_a_call_larger_than_all_the_room_goes_alone() -> None:
    """It would wait for ever otherwise."""

    async def run() -> None:
        driver = WaitingDriver()
        driver.open.set()
        assert await batcher_of(driver, max_bytes=10).enqueue(task(b"x" * 1000)) is None

    asyncio.run(run())


def test_a_call_cancelled_before_its_batch_left_is_not_sent() -> None:
    """Its room is given back."""

    async def run() -> None:
        driver = WaitingDriver()
        batcher = batcher_of(driver)
        first = asyncio.create_task(enqueue(batcher, task()))
        await settle_down()
        cancelled = asyncio.create_task(enqueue(batcher, task()))
        outside = asyncio.create_task(enqueue(batcher, task()))
        await settle_down()
        cancelled.cancel()
        await settle_down()
        driver.open.set()
        assert EnqueueStatus.ENQUEUED is await first
        assert EnqueueStatus.ENQUEUED is await outside
        assert [1, 1] == driver.batches
        assert 0 == batcher._queues.here()[""].room.calls

    asyncio.run(run())


def test_a_failure_of_the_driver_is_every_callers() -> None:
    """No caller waits indefinitely."""

    async def run() -> None:
        driver = WaitingDriver()
        driver.error = RuntimeError("broken")
        driver.open.set()
        batcher = batcher_of(driver)
        outcomes = await asyncio.gather(*[batcher.enqueue(task()) for _ in range(3)], return_exceptions=True)
        assert [driver.error] * 3 == outcomes
        driver.error = None
        assert await batcher.enqueue(task()) is None

    asyncio.run(run())


def test_calls_end_with_a_task_that_is_cancelled_from_outside() -> None:
    """The callers were not cancelled: each learns whether its task may have been enqueued."""

    async def run() -> None:
        driver = WaitingDriver()
        batcher = batcher_of(driver)
        calls = [asyncio.create_task(enqueue(batcher, task()))]
        await settle_down()
        calls.append(asyncio.create_task(enqueue(batcher, task())))
        await settle_down()
        [flusher] = driver.started
        flusher.cancel()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert [ReplyLostError, RedisUnavailableError] == [type(outcome) for outcome in outcomes]

    asyncio.run(run())


class HeldDriver:
    """A blocking driver whose batches are answered when the test lets them."""

    target = RedisTarget()

    def __init__(self, timeout: float = 5.0) -> None:
        self.timeout = timeout
        self.batches: list[int] = []
        self.entered = threading.Semaphore(0)
        self.open = threading.Event()
        self.errors: list[BaseException | None] = []
        self.refused: Sequence[int] = ()

    def check_open(self) -> None:
        pass

    def run_batch(self, plans: Sequence[Plan[Any]]) -> list[Any]:
        self.entered.release()
        assert self.open.wait(10)
        if self.errors and (error := self.errors.pop(0)) is not None:
            raise error
        outcomes, tasks = answer(plans, self.refused)
        self.batches.append(tasks)
        return outcomes


class Callers:
    """Threads that enqueue one task each."""

    def __init__(self, batcher: BlockingEnqueueBatcher) -> None:
        self.batcher = batcher
        self.outcomes: list[Any] = []
        self.threads: list[threading.Thread] = []

    def start(self, number: int, *, daemon: bool = False) -> None:
        """Start threads."""
        for _ in range(number):
            self.threads.append(threading.Thread(target=self._call, daemon=daemon))
            self.threads[-1].start()

    def wait_for_outcomes(self, number: int) -> None:
        """Wait until this many calls have ended."""
        while len(self.outcomes) < number:
            time.sleep(0.01)

    def wait_for_tickets(self, number: int) -> None:
        while sum(ticket.sending is None for ticket in list(self.batcher._queues[""].tickets)) != number:
            pass

    def follow_a_leader(self, driver: HeldDriver, followers: int) -> None:
        """Start one thread that sends, and others that wait for it; then let the driver go on."""
        self.start(1)
        assert driver.entered.acquire(timeout=10)
        self.start(followers)
        self.wait_for_tickets(followers)
        driver.open.set()

    def join(self) -> list[Any]:
        for thread in self.threads:
            thread.join(10)
        return self.outcomes

    def _call(self) -> None:
        try:
            self.outcomes.append(status(self.batcher.enqueue(task())))
        except BaseException as error:  # noqa: BLE001 - it is looked at
            self.outcomes.append(type(error))


def blocking_batcher_of(driver: HeldDriver, **limits: int) -> BlockingEnqueueBatcher:
    """Make a batcher over a driver of the test."""
    return BlockingEnqueueBatcher(driver, SYSTEM_CLOCK, **limits)  # type: ignore[arg-type]


def test_threads_that_ask_while_a_batch_is_on_its_way_travel_together() -> None:
    """The first of them sends for all."""
    driver = HeldDriver()
    callers = Callers(blocking_batcher_of(driver))
    callers.follow_a_leader(driver, 9)
    assert [EnqueueStatus.ENQUEUED] * 10 == callers.join()
    assert [1, 9] == driver.batches


def test_an_interrupted_leader_leaves_no_caller_waiting() -> None:
    """Callers in its batch learn that the reply is lost; one of the next ones sends the rest."""
    driver = HeldDriver()
    driver.errors = [KeyboardInterrupt()]
    callers = Callers(blocking_batcher_of(driver))
    callers.follow_a_leader(driver, 3)
    outcomes = callers.join()
    assert [EnqueueStatus.ENQUEUED] * 3 == sorted(one for one in outcomes if one is not KeyboardInterrupt)
    assert [3] == driver.batches


def test_followers_of_an_interrupted_leader_learn_that_their_replies_are_lost() -> None:
    """Their tasks may be enqueued; the next caller leads again."""
    driver = HeldDriver()
    driver.errors = [None, KeyboardInterrupt()]
    batcher = blocking_batcher_of(driver)
    callers = Callers(batcher)
    callers.follow_a_leader(driver, 3)
    outcomes = callers.join()
    assert [EnqueueStatus.ENQUEUED, KeyboardInterrupt] == [
        one for one in outcomes if one is not ReplyLostError
    ]
    assert 2 == outcomes.count(ReplyLostError)
    assert batcher.enqueue(task()) is None


def test_a_leader_that_is_interrupted_before_it_sends_leaves_no_caller_waiting() -> None:
    """A signal may arrive between any two steps: what was called becomes free for the next caller."""
    driver = HeldDriver()
    driver.open.set()
    batcher = blocking_batcher_of(driver)
    lead = batcher._lead

    def interrupted(queue: object) -> None:
        batcher._lead = lead  # type: ignore[method-assign]
        raise KeyboardInterrupt

    batcher._lead = interrupted  # type: ignore[method-assign]
    callers = Callers(batcher)
    callers.start(1)
    assert [KeyboardInterrupt] == callers.join()
    callers.start(1)
    assert [KeyboardInterrupt, EnqueueStatus.ENQUEUED] == callers.join()
    assert [1] == driver.batches
    assert (0, 0) == (len(batcher._queues[""].tickets), len(batcher._queues[""].outside))


def test_h20_threads_wait_for_room_and_get_an_error_in_the_end() -> None:
    """One is taken in; the other learns after the time-out what the matter is."""
    driver = HeldDriver(timeout=0.05)
    batcher = blocking_batcher_of(driver, max_calls=1)
    callers = Callers(batcher)
    callers.start(1)
    assert driver.entered.acquire(timeout=10)
    with pytest.raises(RedisUnavailableError, match="1 call "):
        batcher.enqueue(task())
    driver.open.set()
    assert [EnqueueStatus.ENQUEUED] == callers.join()
    assert batcher.enqueue(task()) is None
    assert (0, 0) == (len(batcher._queues[""].tickets), len(batcher._queues[""].outside))


def test_a_batch_whose_reply_is_lost_is_unknown_to_each_of_its_callers() -> None:
    """An error of the run is the result of its tasks."""
    driver = HeldDriver()
    driver.open.set()
    lost = ReplyLostError("redis:6379", "broken")
    driver.run_batch = lambda plans: [lost for _ in plans]  # type: ignore[method-assign]
    assert EnqueueStatus.UNKNOWN is status(blocking_batcher_of(driver).enqueue(task()))


def test_each_coroutine_of_a_batch_gets_the_outcome_of_its_own_task() -> None:
    """The call in the middle is refused; one before it was cancelled, so it is no longer the third."""

    async def run() -> None:
        driver = WaitingDriver()
        batcher = batcher_of(driver)
        first = asyncio.create_task(enqueue(batcher, task()))
        await settle_down()
        calls = [asyncio.create_task(enqueue(batcher, task())) for _ in range(4)]
        await settle_down()
        calls[0].cancel()
        driver.refused = [1]
        driver.open.set()
        assert EnqueueStatus.ENQUEUED is await first
        outcomes = await asyncio.gather(*calls[1:])
        assert [EnqueueStatus.ENQUEUED, EnqueueStatus.CONFLICT, EnqueueStatus.ENQUEUED] == outcomes
        assert [1, 3] == driver.batches

    asyncio.run(run())


def test_each_thread_of_a_batch_gets_the_outcome_of_its_own_task() -> None:
    """The second of three is refused, which is not the one that sent for all."""
    driver = HeldDriver()
    batcher = blocking_batcher_of(driver)
    callers = [Callers(batcher) for _ in range(4)]
    callers[0].start(1)
    assert driver.entered.acquire(timeout=10)
    for waiting, one in enumerate(callers[1:], 1):
        one.start(1)
        one.wait_for_tickets(waiting)
    driver.refused = [1]
    driver.open.set()
    outcomes = [one.join() for one in callers]
    simply = [EnqueueStatus.ENQUEUED]
    assert [simply, simply, [EnqueueStatus.CONFLICT], simply] == outcomes


class ReenteringDriver(HeldDriver):
    """One that enqueues while it sends, as a signal handler, a destructor or a log handler may."""

    batcher: BlockingEnqueueBatcher | None = None

    def run_batch(self, plans: Sequence[Plan[Any]]) -> list[Any]:
        batcher, self.batcher = self.batcher, None
        if batcher is not None:
            batcher.enqueue(task())
        return super().run_batch(plans)


def test_a_thread_that_is_sending_may_enqueue() -> None:
    """It would wait for itself; so the inner call goes alone. (D15)"""
    driver = ReenteringDriver()
    driver.open.set()
    driver.batcher = batcher = blocking_batcher_of(driver)
    callers = Callers(batcher)
    callers.start(1, daemon=True)
    assert [EnqueueStatus.ENQUEUED] == callers.join()
    assert [1, 1] == driver.batches


class OnceHeldDriver(HeldDriver):
    """One whose first batches wait until the test lets them go."""

    held = 1

    def run_batch(self, plans: Sequence[Plan[Any]]) -> list[Any]:
        self.held -= 1
        if self.held >= 0:
            return super().run_batch(plans)
        outcomes, tasks = answer(plans, self.refused)
        self.batches.append(tasks)
        return outcomes


def test_a_thread_waits_for_its_turn_no_longer_than_the_timeout() -> None:
    """The thread that sends may be in a signal handler that takes long; the next one sends meanwhile.

    Defect D15.
    """
    driver = OnceHeldDriver(timeout=0.05)
    batcher = blocking_batcher_of(driver)
    callers = Callers(batcher)
    callers.start(1, daemon=True)
    assert driver.entered.acquire(timeout=10)
    second = Callers(batcher)
    second.start(1, daemon=True)
    assert [EnqueueStatus.ENQUEUED] == second.join()
    driver.open.set()
    assert [EnqueueStatus.ENQUEUED] * 1 == callers.join()


def test_a_thread_does_not_wait_for_ever_for_a_batch_that_has_its_call() -> None:
    """Whether the task was enqueued is unknown then. (D15)"""
    driver = OnceHeldDriver(timeout=0.05)
    driver.held = 2
    batcher = blocking_batcher_of(driver)
    first, others = Callers(batcher), Callers(batcher)
    first.start(1, daemon=True)
    assert driver.entered.acquire(timeout=10)
    others.start(2, daemon=True)
    others.wait_for_outcomes(1)
    assert [ReplyLostError] == others.outcomes
    driver.open.set()
    assert [EnqueueStatus.ENQUEUED] == first.join()
    assert [ReplyLostError, EnqueueStatus.ENQUEUED] == others.join()


def test_an_exception_in_the_thread_that_sends_stays_out_of_other_threads() -> None:
    """A job's time limit concerns that job; the others learn that the reply is lost. (D51)"""

    class TimeLimitError(Exception):
        pass

    driver = HeldDriver()
    driver.errors = [None, TimeLimitError()]
    callers = Callers(blocking_batcher_of(driver))
    callers.follow_a_leader(driver, 2)
    outcomes = callers.join()
    assert [EnqueueStatus.ENQUEUED] == [one for one in outcomes if isinstance(one, EnqueueStatus)]
    assert {TimeLimitError, ReplyLostError} == {one for one in outcomes if isinstance(one, type)}
