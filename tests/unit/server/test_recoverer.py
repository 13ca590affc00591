"""What the recoverer does of itself: quiet times after an outage that the look has met."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pyasynq._background.redis_time import RedisTime
from pyasynq._broker.queue_readings import QueueReading
from pyasynq._clock import SYSTEM_CLOCK, Instant
from pyasynq._engine.services.recoverer import Recoverer
from pyasynq._engine.settings import EngineSettings
from pyasynq._engine.take.queue_board import QueueBoard
from pyasynq._redis.driver import AsyncDriver
from pyasynq._redis.url import parse_redis_url
from pyasynq.config import ServerConfig
from pyasynq.events import Events
from tests.run_async import run_async


@pytest.fixture
def board() -> QueueBoard:
    """Two queues."""
    return QueueBoard(["one", "two"])


def recoverer(board: QueueBoard) -> Recoverer:
    """Return a recoverer that may begin at once. Nothing here asks Redis."""
    parts = SimpleNamespace(
        events=Events(),
        clock=SYSTEM_CLOCK,
        config=ServerConfig(),
        settings=EngineSettings(),
        crash_limit=lambda _: 3,
        driver=AsyncDriver(parse_redis_url("redis://localhost:1")),
        redis_time=RedisTime(SYSTEM_CLOCK),
        board=board,
    )
    return Recoverer(parts, lambda: board.names, 1_000.0)  # type: ignore[arg-type]


def read(board: QueueBoard, **outages: int) -> None:
    """Let all queues be read, after these numbers of looks at which they could not be."""
    for queue in board.queues:
        queue.reading, queue.is_reachable = QueueReading(Instant(100)), True
        queue.outages += outages.get(queue.name, 0)


@run_async
async def test_an_outage_that_the_look_has_met_is_followed_by_a_quiet_time(board: QueueBoard) -> None:
    """Live workers have lost their leases, too, and are about to renew them. (D25)"""
    service = recoverer(board)
    read(board)
    await service.round()
    assert not service._quiet.holds(SYSTEM_CLOCK.monotonic())
    read(board, one=1, two=1)
    await service.round()
    assert service._quiet.holds(SYSTEM_CLOCK.monotonic())


@run_async
async def test_a_queue_that_could_not_be_read_is_quiet_alone(board: QueueBoard) -> None:
    """Nothing was wrong with the others. (D25)"""
    service = recoverer(board)
    read(board)
    await service.round()
    read(board, two=3)
    await service.round()
    assert ["two"] == list(service._quiet_queues)
    assert not service._quiet.holds(SYSTEM_CLOCK.monotonic())


@run_async
async def test_nothing_is_asked_and_no_quiet_time_begins_while_no_queue_can_be_read(
    board: QueueBoard,
) -> None:
    """The look reports the outage; the quiet time begins when it is over. (D25)"""
    service = recoverer(board)
    read(board)
    await service.round()
    for queue in board.queues:
        queue.reading, queue.is_reachable, queue.outages = ValueError(), False, 1
    for _ in range(2):
        await service.round()
    assert not service._quiet.holds(SYSTEM_CLOCK.monotonic())
    read(board)
    await service.round()
    assert service._quiet.holds(SYSTEM_CLOCK.monotonic())


@pytest.mark.parametrize("is_reachable", [False, True], ids=["no rights", "wrong type"])
@run_async
async def test_a_queue_that_fails_alone_begins_no_quiet_time_of_the_others(
    board: QueueBoard, is_reachable: bool
) -> None:
    """The look reads it again every second, and the others every three."""
    service = recoverer(board)
    read(board)
    await service.round()
    _, two = board.queues
    for _ in range(3):
        two.reading, two.is_reachable = ValueError(), is_reachable
        two.outages += not is_reachable
        await service.round()
    assert is_reachable == ("two" in service._failures.failed)
    read(board)
    await service.round()
    assert not service._quiet.holds(SYSTEM_CLOCK.monotonic())
