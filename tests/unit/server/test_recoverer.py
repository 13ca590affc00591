"""What the recoverer does of itself: quiet times, and what it does after a call that failed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._background.redis_time import RedisTime
from pyasynq._broker.aggregation_sets import Reclaimed
from pyasynq._broker.leases import ExpiredTask, Recovered
from pyasynq._broker.queue_readings import QueueReading
from pyasynq._clock import Instant
from pyasynq._engine.services.recoverer import Recoverer
from pyasynq._engine.settings import EngineSettings
from pyasynq._engine.take.queue_board import QueueBoard
from pyasynq.config import ServerConfig
from pyasynq.errors import RedisReplyError, RedisUnavailableError
from pyasynq.events import Events, RoundFailed, TaskRecovered
from pyasynq.limits import Queue
from tests.fake_clock import FakeClock
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import Sequence

SETTINGS = EngineSettings()
NOW = 1_000
LOOK_SECONDS = SETTINGS.look_interval
BROKEN_CALL = RedisUnavailableError("localhost:1", "no reply within 5 s")
WRONG_TYPE = RedisReplyError("WRONGTYPE", "Operation against a key")


class ScriptedDriver:
    """A Redis whose queues have an orphan each, which is pending as soon as the recoverer puts it back."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.errors: dict[tuple[str, str], Exception] = {}
        """Errors of plans, by name of the plan and of the queue."""
        self.asked: list[tuple[str, str]] = []
        self.restart: float | None = None
        self.orphans: set[str] = set()

    def get_last_restart(self, node: str) -> float | None:
        """Return what the test has set."""
        del node
        return self.restart

    async def run_batch(self, plans: Sequence[Any]) -> list[Any]:
        """Answer plans."""
        return [self._answer(plan) for plan in plans]

    def _answer(self, plan: Any) -> Any:
        name, queue = plan.__name__, plan.gi_frame.f_locals["queue"]
        plan.close()
        self.asked.append((name, queue))
        if error := self.errors.get((name, queue)):
            return error
        if name == "recover":
            self.orphans.remove(queue)
            return [Recovered(f"of {queue}", 1)]
        if name == "reclaim_stale_sets":
            return Reclaimed(0, 0)
        return [ExpiredTask(f"of {queue}", b"", 0, "dead/1", NOW - 10)] if queue in self.orphans else []


class Scene:
    """A recoverer of two queues, its clock, and what it reports."""

    def __init__(self) -> None:
        self.board = QueueBoard(["one", "two"])
        self.clock = FakeClock()
        self.driver = ScriptedDriver(self.clock)
        self.recovered: list[str] = []
        self.failures: list[RoundFailed] = []
        events = Events()
        events.subscribe(TaskRecovered, lambda event: self.recovered.append(event.queue))
        events.subscribe(RoundFailed, self.failures.append)
        parts = SimpleNamespace(
            events=events,
            clock=self.clock,
            config=ServerConfig(),
            settings=SETTINGS,
            crash_limit=lambda _: 3,
            driver=self.driver,
            redis_time=RedisTime(self.clock),
            board=self.board,
            roster={},
        )
        self.service = Recoverer(parts, lambda: self.board.names, 1_000.0)  # type: ignore[arg-type]

    def is_quiet(self) -> bool:
        """Return whether nothing is recovered now."""
        return self.service._quiet.holds(self.clock.monotonic())

    def look(self, *away: str) -> None:
        """Let all queues be read but these; time passes as between two looks."""
        self.clock.move(LOOK_SECONDS)
        now = self.clock.monotonic()
        for queue in self.board.queues:
            is_reachable = queue.name not in away
            queue.looked_at(now, now, is_reachable=is_reachable, tolerated=SETTINGS.tolerated_outage)
            end = NOW - 10 if queue.name in self.driver.orphans else NOW + 20
            reading = QueueReading(
                Instant(NOW), active=1, leases=1, next_lease_end=end, next_stale_set=NOW - 1
            )
            queue.reading = reading if is_reachable else BROKEN_CALL

    async def live(self, *away: str, seconds: float = LOOK_SECONDS) -> float:
        """Look every three seconds for a time, each with a round; return the rest after the last."""
        rest = 0.0
        for _ in range(int(seconds / LOOK_SECONDS)):
            self.look(*away)
            rest = await self.service.round()
        return rest

    async def retry(self, rest: float) -> float:
        """Do the next round without a new look; return the rest after it."""
        self.clock.move(rest + 0.001)
        return await self.service.round()


@pytest.fixture
def scene() -> Scene:
    """A recoverer that may begin at once. Nothing here asks Redis."""
    return Scene()


@run_async
async def test_an_outage_that_the_look_has_met_is_followed_by_a_quiet_time(scene: Scene) -> None:
    """Live workers have lost their leases, too, and are about to renew them. (D25)"""
    await scene.live()
    assert not scene.is_quiet()
    await scene.live("one", "two", seconds=30)
    assert not scene.is_quiet(), "it begins when the outage is over"
    scene.driver.orphans.add("one")
    await scene.live()
    assert scene.is_quiet()
    await scene.live(seconds=27)
    assert [] == scene.recovered
    await scene.live(seconds=6)
    assert ["one"] == scene.recovered


@run_async
async def test_an_outage_in_which_no_live_worker_loses_its_leases_begins_no_quiet_time(scene: Scene) -> None:
    """Two calls of a worker without a processor time out in a row, and Redis was never away."""
    await scene.live()
    scene.driver.orphans.add("one")
    await scene.live("one", "two", seconds=15)
    await scene.live()
    assert ["one"] == scene.recovered


@run_async
async def test_a_queue_that_could_not_be_read_is_quiet_alone(scene: Scene) -> None:
    """Nothing was wrong with the others. (D25)"""
    await scene.live()
    await scene.live("two", seconds=30)
    scene.driver.orphans |= {"one", "two"}
    await scene.live()
    assert (["two"], False) == (list(scene.service._quiet_queues), scene.is_quiet())
    assert ["one"] == scene.recovered
    await scene.live(seconds=33)
    assert ["one", "two"] == scene.recovered


@run_async
async def test_nothing_is_asked_while_no_queue_can_be_read(scene: Scene) -> None:
    """The look reports the outage. (D25)"""
    await scene.live()
    scene.driver.asked.clear()
    await scene.live("one", "two", seconds=9)
    assert [] == scene.driver.asked


@pytest.mark.parametrize("is_reachable", [False, True], ids=["no rights", "wrong type"])
@run_async
async def test_a_queue_that_fails_alone_begins_no_quiet_time_of_the_others(
    scene: Scene, is_reachable: bool
) -> None:
    """The look reads it again every second, and the others every three."""
    await scene.live()
    _, two = scene.board.queues
    scene.driver.errors["list_expired", "two"] = WRONG_TYPE
    for _ in range(3):
        two.reading, two.is_reachable = WRONG_TYPE, is_reachable
        await scene.service.round()
    assert is_reachable == ("two" in scene.service._unread_since)
    scene.driver.errors.clear()
    await scene.live(seconds=9)
    assert not scene.is_quiet()


@pytest.mark.parametrize("call", ["list_expired", "recover"])
@run_async
async def test_an_orphan_is_back_shortly_after_a_call_that_broke(scene: Scene, call: str) -> None:
    """The cause may be the worker's own time-out on a busy machine: the call is repeated after a back-off."""
    await scene.live()
    scene.driver.orphans.add("one")
    scene.driver.errors[call, "one"] = BROKEN_CALL
    rest = await scene.live()
    assert [] == scene.recovered
    assert 0.05 <= rest <= 0.1
    scene.driver.errors.clear()
    assert LOOK_SECONDS == await scene.retry(rest)
    assert ["one"] == scene.recovered


@run_async
async def test_a_round_that_failed_is_repeated_without_a_new_look(scene: Scene) -> None:
    """The service itself backs off when no queue could be asked."""
    await scene.live()
    scene.driver.orphans |= {"one", "two"}
    scene.driver.errors = {("list_expired", queue): BROKEN_CALL for queue in scene.board.names}
    with pytest.raises(RedisUnavailableError):
        await scene.live()
    scene.driver.errors.clear()
    await scene.retry(0.1)
    assert ["one", "two"] == scene.recovered


@pytest.mark.parametrize("call", ["list_expired", "recover", "reclaim_stale_sets"])
@run_async
async def test_a_queue_that_goes_on_to_fail_is_asked_more_and_more_rarely(scene: Scene, call: str) -> None:
    """At most every five seconds, after a jittered back-off; the other queue is not concerned."""
    await scene.live()
    scene.driver.errors[call, "one"] = WRONG_TYPE
    scene.driver.orphans |= {"one", "two"}
    for _ in range(100):
        scene.look()
        rest = await scene.service.round()
        while rest < LOOK_SECONDS:
            rest = await scene.retry(rest)
    assert "two" in scene.recovered
    assert {"one"} == {event.queue for event in scene.failures}
    rests = [event.rest for event in scene.failures]
    assert max(rests[:2]) < 0.3
    assert 2.5 <= min(rests[8:]) <= max(rests) <= 5
    scene.driver.errors.clear()
    await scene.live(seconds=39)
    assert ["one", "two"] == sorted(scene.recovered)


@pytest.mark.parametrize(("seconds", "is_quiet"), [(15, False), (30, True)])
@run_async
async def test_a_queue_whose_leases_could_not_be_read_for_long_is_quiet(
    scene: Scene, seconds: float, is_quiet: bool
) -> None:
    """Its live workers could not renew them either."""
    await scene.live()
    scene.driver.errors["list_expired", "one"] = WRONG_TYPE
    scene.driver.orphans.add("one")
    await scene.live(seconds=seconds)
    scene.driver.errors.clear()
    await scene.live(seconds=9)
    assert ([] if is_quiet else ["one"]) == scene.recovered
    await scene.live(seconds=33)
    assert ["one"] == scene.recovered


@run_async
async def test_a_queue_that_failed_before_its_removal_is_not_quiet_when_it_returns(scene: Scene) -> None:
    """It is not quiet when it is served again."""
    await scene.live()
    scene.driver.errors["list_expired", "one"] = WRONG_TYPE
    scene.driver.orphans.add("one")
    await scene.live()
    scene.board.remove("one")
    scene.board.forget_removed([])
    await scene.live(seconds=30)
    scene.driver.errors.clear()
    scene.board.add("one", Queue())
    await scene.live(seconds=9)
    assert ["one"] == scene.recovered


@run_async
async def test_a_restart_of_redis_is_followed_by_a_quiet_time(scene: Scene) -> None:
    """It may have come back with leases of the past, which live workers are about to renew."""
    await scene.live()
    scene.driver.orphans.add("one")
    scene.driver.restart = scene.clock.monotonic()
    await scene.live(seconds=30)
    assert (True, []) == (scene.is_quiet(), scene.recovered)
    await scene.live(seconds=6)
    assert ["one"] == scene.recovered


@run_async
async def test_nothing_is_recovered_by_an_answer_that_came_at_the_end_of_an_outage(scene: Scene) -> None:
    """The call has waited for it, and the look has not met the outage yet."""
    await scene.live()
    scene.driver.orphans.add("one")
    scene.look()
    scene.clock.move(25)
    await scene.service.round()
    assert [] == scene.recovered
    await scene.live()
    assert ["one"] == scene.recovered
