"""Scheduler entries that operators pause, and run by hand."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from pyasynq._broker.schedules import (
    EntryPause,
    Fired,
    begin_entries,
    forget_entries,
    pause_queue_entry,
    read_pauses,
)
from pyasynq.errors import DuplicateTaskError, InvalidOptionError, ScheduleNotFoundError, TaskIDConflictError
from pyasynq.events import TickPaused
from pyasynq.info import EntryPauseResult
from pyasynq.inspector import Inspector
from pyasynq.task import Task
from tests.contract.test_inspect_schedulers import announce, entry
from tests.contract.test_inspector import ask  # noqa: F401 - a fixture
from tests.contract.test_scheduler import NOON, Clock, Running, pending, seconds
from tests.contract.test_schedules import fire_tick
from tests.factories import NOW
from tests.fix_broker import BlockingPerformer
from tests.run_async import run_async

if TYPE_CHECKING:
    from tests.contract.test_inspector import Ask
    from tests.factories import Tasks
    from tests.fix_broker import Perform
    from tests.invariants import RedisClient

SINCE = NOW.to_datetime().replace(microsecond=0)
TICKS = "asynq:{default}:x:ticks"


def test_a_paused_entry_enqueues_nothing_and_its_ticks_count_as_fired(perform: Perform, tasks: Tasks) -> None:
    """So that they are not made up for when the pause ends."""
    perform(begin_entries("default", ["e"], now=NOW))
    assert NOW.seconds == perform(pause_queue_entry("default", "e", pauses=True, now=NOW))
    assert Fired(None, 100, is_paused=True) == perform(fire_tick(100, "a"))
    assert [] == tasks.ids("pending")

    assert 0 == perform(pause_queue_entry("default", "e", pauses=False, now=NOW))
    assert Fired(None, 100) == perform(fire_tick(100, "a"))
    assert perform(fire_tick(101, "b")).result is not None
    assert ["b"] == tasks.ids("pending")


def test_a_paused_tick_that_is_sent_again_enqueues_nothing(redis_client: RedisClient, tasks: Tasks) -> None:
    """After a lost reply."""
    perform = BlockingPerformer(redis_client)
    perform(begin_entries("default", ["e"], now=NOW))
    perform(pause_queue_entry("default", "e", pauses=True, now=NOW))
    assert BlockingPerformer(redis_client, replay=True)(fire_tick(100, "a")).result is None
    assert [] == tasks.ids("pending")


def test_other_entries_go_on(perform: Perform, tasks: Tasks) -> None:
    """A pause is that of one entry."""
    perform(begin_entries("default", ["e", "f"], now=NOW))
    perform(pause_queue_entry("default", "e", pauses=True, now=NOW))
    perform(fire_tick(entry_id="f"))
    assert ["a"] == tasks.ids("pending")
    pauses = perform(read_pauses("default", ["f", "e", "g"]))
    assert [EntryPause(True, None), EntryPause(True, NOW.seconds), EntryPause(False, None)] == pauses


def test_a_pause_that_there_is_stays_as_it_is(perform: Perform, redis_client: RedisClient) -> None:
    """It says since when the entry is paused; a text that is not a number is ignored."""
    perform(begin_entries("default", ["e"], now=NOW))
    for at in (0, 10):
        assert NOW.seconds == perform(pause_queue_entry("default", "e", pauses=True, now=NOW.plus(at)))
    redis_client.hset(TICKS, "e:paused", "soon")
    assert NOW.seconds + 20 == perform(pause_queue_entry("default", "e", pauses=True, now=NOW.plus(20)))


def test_an_entry_of_a_scheduler_in_go_is_not_paused(perform: Perform, redis_client: RedisClient) -> None:
    """It would not obey; nothing is written."""
    for pauses in (True, False):
        assert perform(pause_queue_entry("default", "go", pauses=pauses, now=NOW)) is None
    assert 0 == redis_client.exists(TICKS)


def test_a_new_entry_takes_over_the_pause_of_its_predecessor(perform: Perform, tasks: Tasks) -> None:
    """A periodic task whose options are changed is still paused."""
    perform(begin_entries("default", ["old"], now=NOW))
    perform(pause_queue_entry("default", "old", pauses=True, now=NOW))
    perform(begin_entries("default", ["e"], predecessors={"e": "old"}, now=NOW))
    assert perform(fire_tick(100, "a")).is_paused
    assert [] == tasks.ids("pending")


def test_the_pause_of_an_entry_lives_as_long_as_its_ticks(
    perform: Perform, redis_client: RedisClient
) -> None:
    """An old pause of an entry that runs stays; that of a forgotten one goes with it."""
    perform(begin_entries("default", ["e", "gone"], now=NOW))
    for name in ("e", "gone"):
        perform(pause_queue_entry("default", name, pauses=True, now=NOW))
    assert 1 == perform(forget_entries("default", before=NOW.seconds + 1, keep=["e"]))
    assert {b"e:since", b"e:paused"} == set(redis_client.hkeys(TICKS))


def test_the_inspector_pauses_entries_and_shows_it(ask: Ask, redis_client: RedisClient) -> None:  # noqa: F811
    """With the scheduler that has them; one in Go does not obey, and the result says so."""
    announce(redis_client, "host:7:x", entry("ours"), entry("theirs", 'Queue("low")'))
    BlockingPerformer(redis_client)(begin_entries("default", ["ours"], now=NOW))
    now = SINCE

    assert EntryPauseResult("ours", "default", True, now) == ask("pause_entry", "ours")
    assert EntryPauseResult("theirs", "low", False, None) == ask("pause_entry", "theirs")
    shown = [(one.id, one.scheduler_id, one.engine, one.paused_since) for one in ask("scheduler_entries")]
    assert [("ours", "host:7:x", "pyasynq", now), ("theirs", "host:7:x", "", None)] == shown
    assert EntryPauseResult("ours", "default", True, None) == ask("unpause_entry", "ours")
    assert [None, None] == [one.paused_since for one in ask("scheduler_entries")]


@pytest.mark.parametrize("method", ["pause_entry", "unpause_entry", "run_entry"])
def test_an_entry_that_no_scheduler_has_is_an_error(ask: Ask, method: str) -> None:  # noqa: F811
    """A blank name is none."""
    with pytest.raises(ScheduleNotFoundError, match="'nope'"):
        ask(method, "nope")
    with pytest.raises(InvalidOptionError, match=r"^entry_id="):
        ask(method, " ")


def test_an_entry_is_run_by_hand_with_its_options(
    ask: Ask,  # noqa: F811
    redis_client: RedisClient,
) -> None:
    """Its ticks stay as they are, it is noted in the history, and unread options are told."""
    texts = ('Queue("low")', "MaxRetry(3)", "Nonsense(1)", 'Header(["k","v"])')
    announce(redis_client, "s", entry("e", *texts, task_type="report", payload=b"{}"))

    run = ask("run_entry", "e")

    assert ("report", b"{}", "low", 3) == (
        run.task.type,
        run.task.payload,
        run.task.queue,
        run.task.max_retry,
    )
    assert ("e", ("Nonsense(1)",)) == (run.entry_id, run.unread_options)
    [task] = ask("list_tasks", "low", "pending")
    assert (run.task.id, {"k": "v"}) == (task.id, task.headers)
    assert [run.task.id] == [event.task_id for event in ask("scheduler_events", "e")]
    assert 0 == redis_client.exists("asynq:{low}:x:ticks", TICKS)


def test_an_entry_is_not_run_against_its_rules(ask: Ask, redis_client: RedisClient) -> None:  # noqa: F811
    """A lock that is held and an id that exists are errors, as for any enqueue."""
    announce(redis_client, "s", entry("locked", "Unique(1h0m0s)"), entry("named", 'TaskID("x")'))
    for entry_id, error in (("locked", DuplicateTaskError), ("named", TaskIDConflictError)):
        ask("run_entry", entry_id)
        with pytest.raises(error):
            ask("run_entry", entry_id)
    assert 2 == len(ask("list_tasks", "default", "pending"))


@run_async
async def test_a_running_scheduler_obeys(redis_url: str, redis_client: RedisClient) -> None:
    """In every policy for missed ticks: those of a pause are not made up for."""
    clock = Clock()
    async with Running(redis_url, clock) as running, Inspector(redis_url, clock=clock) as inspector:
        running.scheduler.events.subscribe(TickPaused, running.seen.append)
        entry_id = await running.register("@every 10s", Task("t"), misfire="all")
        await running.beat()
        assert [10] == await running.move(10)

        await inspector.pause_entry(entry_id)
        assert [] == await running.move(30)
        paused = [(event.tick - NOON).total_seconds() for event in running.seen]
        assert [20, 30, 40] == paused

        await running.beat()
        run = await inspector.run_entry(entry_id)
        await inspector.unpause_entry(entry_id)
        assert [50] == await running.move(10)
        assert [*seconds(10), run.task.id, *seconds(50)] == pending(redis_client)


def test_the_length_of_a_pause_is_told(ask: Ask, redis_client: RedisClient) -> None:  # noqa: F811
    """The pause is told as its start time, so that two looks give the same value."""
    announce(redis_client, "s", entry("e"))
    BlockingPerformer(redis_client)(begin_entries("default", ["e"], now=NOW))
    BlockingPerformer(redis_client)(pause_queue_entry("default", "e", pauses=True, now=NOW.plus(-3_600)))
    [found] = ask("scheduler_entries")
    assert SINCE - timedelta(hours=1) == found.paused_since
