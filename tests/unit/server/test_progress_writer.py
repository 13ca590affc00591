"""Writing progress, without a server."""

from __future__ import annotations

import asyncio
import json
import math
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._background.redis_time import RedisTime
from pyasynq._clock import SYSTEM_CLOCK
from pyasynq._engine.engine import Engine
from pyasynq._engine.run.attempt import Attempt, Phase
from pyasynq._engine.services.progress_writer import ProgressWriter
from pyasynq._engine.settings import EngineSettings
from pyasynq._wire.history import ProgressReport
from pyasynq.errors import RedisReplyError, RedisUnavailableError
from pyasynq.events import Events, RoundFinished
from tests.attempts import attempt
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq._redis.plan import Plan

SETTINGS = EngineSettings()
AWAY = RedisUnavailableError("redis:6379", "refused")


class FakeDriver:
    """Notes what would be written; `answers` are given for the next batches instead."""

    def __init__(self) -> None:
        self.written: list[tuple[str, int]] = []
        self.answers: list[Any] = []
        self.wrote = asyncio.Event()

    async def run_batch(self, plans: Sequence[Plan[bool]]) -> list[Any]:
        calls: list[Any] = [plan.send(None) for plan in plans]
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        self.written += [(str(call.args[0]), json.loads(call.args[4])["done"]) for call in calls]
        self.wrote.set()
        return answer or [True] * len(plans)


def make_writer() -> tuple[ProgressWriter, FakeDriver]:
    """Return a writer that was not started, and what it writes with."""
    driver = FakeDriver()
    parts: Any = SimpleNamespace(
        driver=driver, events=Events(), settings=SETTINGS, redis_time=RedisTime(SYSTEM_CLOCK)
    )
    return ProgressWriter(parts), driver


def report(writer: ProgressWriter, one: Attempt, done: int) -> None:
    """Say something, as the engine hands it on."""
    one.progress = ProgressReport(done, None, "", 0.0)
    if not one.progress_queued:
        one.progress_queued = True
        writer.report(one)


def running(task_id: str = "a") -> Attempt:
    """Return an attempt whose handler runs."""
    one = attempt(task_id)
    one.phase = Phase.RUNNING
    return one


@run_async
async def test_the_newest_report_of_each_attempt_is_written_and_then_it_rests() -> None:
    """One batch for all of them; when nothing came meanwhile it rests until it is woken."""
    writer, driver = make_writer()
    a, b = running("a"), running("b")
    for done in range(5):
        report(writer, a, done)
    report(writer, b, 7)
    assert SETTINGS.progress_interval == await writer.round()
    assert [("a", 4), ("b", 7)] == driver.written
    assert math.inf == await writer.round()


@run_async
async def test_a_report_during_a_write_is_written_by_the_next_round() -> None:
    """It neither is lost nor ends the rest."""
    writer, driver = make_writer()
    one = running()
    report(writer, one, 1)
    await writer.round()
    report(writer, one, 2)
    assert SETTINGS.progress_interval == await writer.round()
    assert [("a", 1), ("a", 2)] == driver.written


@run_async
async def test_an_attempt_that_has_ended_is_left_to_its_settle() -> None:
    """The token would be refused anyhow, or worse, the settle be overtaken."""
    writer, driver = make_writer()
    one = running()
    report(writer, one, 1)
    one.phase = Phase.SETTLING
    await writer.round()
    assert [] == driver.written


@pytest.mark.parametrize("answer", [AWAY, [AWAY, True]])
@run_async
async def test_what_could_not_be_written_is_tried_again_with_what_is_newest_then(answer: Any) -> None:
    """The round fails, so that the service backs off; only what failed is repeated."""
    writer, driver = make_writer()
    a, b = running("a"), running("b")
    report(writer, a, 1)
    report(writer, b, 1)
    driver.answers = [answer]
    with pytest.raises(RedisUnavailableError):
        await writer.round()
    driver.written.clear()
    report(writer, a, 2)
    await writer.round()
    assert [("a", 2)] + ([("b", 1)] if answer is AWAY else []) == driver.written


@run_async
async def test_the_first_report_after_a_silence_is_written_at_once() -> None:
    """The service sleeps without end until then, and stops when it is told to."""
    writer, driver = make_writer()
    rested = asyncio.Event()
    writer.events.subscribe(RoundFinished, lambda event: rested.set())
    await writer.start()
    await rested.wait()
    report(writer, running(), 1)
    await driver.wrote.wait()
    await writer.stop()
    assert [("a", 1)] == driver.written


def test_a_thread_that_outlives_the_loop_may_still_report() -> None:
    """It is not written; the user's thread does not fail for that."""
    loop = asyncio.new_event_loop()
    loop.close()
    engine: Any = SimpleNamespace(loop=loop, _clock=SYSTEM_CLOCK, _progress_writer=make_writer()[0])
    one = running()
    Engine.report_progress(engine, one, 1, None, "")
    assert one.progress is not None


def test_a_report_is_dated_when_it_was_made() -> None:
    """By Redis' clock, carried forward from the beginning of the attempt."""
    one = running()
    assert b"" == one.progress_json()
    one.started, one.started_at = 100.0, 2_000_000_000.0
    one.progress = ProgressReport(1, 2, "x", 107.25)
    assert b'{"done":1,"at":2000000007.25,"total":2,"note":"x"}' == one.progress_json()


@run_async
async def test_progress_that_redis_refuses_is_not_sent_again() -> None:
    """Another report may be taken. (D04)"""
    writer, driver = make_writer()
    one = attempt("a")
    one.phase = Phase.RUNNING
    report(writer, one, 1)
    driver.answers = [[RedisReplyError("refused")]]
    with pytest.raises(RedisReplyError):
        await writer.round()
    driver.written.clear()
    assert math.inf == await writer.round()
    assert [] == driver.written
    report(writer, one, 2)
    await writer.round()
    assert [("a", 2)] == driver.written
