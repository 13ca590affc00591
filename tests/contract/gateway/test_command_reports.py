"""What instances report of the commands that they run: output as it comes, ends, and metrics."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from pyasynq.control import Archive, Retry
from pyasynq.gateway.hosted.cmd.command_table import CommandTable
from pyasynq.gateway.hosted.cmd.output import KeptOutput
from pyasynq.gateway.service_metrics import ServiceMetrics
from pyasynq.task import TaskState
from tests.contract.gateway.test_hosted_cmd import JUDGED, commanding, enqueue, wait_until
from tests.fix_commands import ON_LINUX, RanAttempt
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq.consumer import Attempt
    from pyasynq.gateway.hosted.cmd.command_run import CommandRun
    from pyasynq.operations import HostedCommand
    from tests.fix_service import Visitor

pytestmark = [pytest.mark.usefixtures("redis_client"), ON_LINUX]


async def until_listed(visitor: Visitor, condition: Callable[[HostedCommand], object]) -> HostedCommand:
    """Return the only command when it fulfils a condition."""
    while True:
        found = await visitor.operator.commands()
        if found and condition(found[0]):
            [one] = found
            return one
        await asyncio.sleep(0.05)


@run_async
async def test_output_is_reported_while_a_command_runs(redis_url: str) -> None:
    """To cancel the task kills it, and the metrics count both commands."""
    async with commanding(redis_url, JUDGED) as visitor:
        await enqueue(visitor, "echo half; echo bad >&2; sleep 1000")
        running = await until_listed(visitor, lambda one: one.out_bytes and one.err_bytes)
        visitor.service.measure()
        before = visitor.service.metrics.render()[1].decode()
        await visitor.operator.cancel_task("dump", "a")
        stopped = await until_listed(visitor, lambda one: one.state != "running")
        metrics = visitor.service.metrics.render()[1].decode()

    assert ("a", "running", "/bin/sh", b"half\n", b"bad\n") == (
        running.task_id,
        running.state,
        running.program,
        running.out,
        running.err,
    )
    assert running.ended is None
    assert ("stopped", running.id) == (stopped.state, stopped.id)
    assert stopped.ended is not None
    assert "pyasynq_service_commands_running 1" in before
    assert 'pyasynq_service_commands_total{queue="dump",outcome="stopped"} 1' in metrics
    assert 'pyasynq_service_command_seconds_count{queue="dump"} 1' in metrics


@run_async
async def test_the_end_of_a_command_is_reported(redis_url: str) -> None:
    """Exit code, resources, and the reason why its attempt has failed."""
    async with commanding(redis_url, JUDGED) as visitor:
        await enqueue(visitor, "echo no such table >&2; exit 65")
        await wait_until(visitor, TaskState.ARCHIVED)
        ended = await until_listed(visitor, lambda one: one.state != "running")

    assert ("archived", "exit code 65", "exit code 65: no such table") == (
        ended.state,
        ended.end,
        ended.reason,
    )
    assert ended.cpu is not None
    assert ended.memory is not None
    assert ended.memory > 100_000


class _Run:
    """The output of a run."""

    def __init__(self) -> None:
        self.out = self.err = type("Stream", (), {"kept": KeptOutput()})()


def make_run() -> CommandRun:
    """Return a run without a process."""
    return cast("CommandRun", _Run())


def make_attempt(task_id: str) -> Attempt:
    """Return an attempt."""
    return cast("Attempt", RanAttempt(id=task_id))


def test_a_table_has_room_for_some_commands() -> None:
    """A new one takes the place of the first that ended; without a free place it is not reported."""
    table = CommandTable(places=2)
    one, two, three = (table.begin(make_attempt(name), "/bin/x", make_run()) for name in "abc")

    assert ["a", "b"] == [report.command.task_id for report in table.take_changed()]
    assert [] == table.take_changed()
    assert 3 == table.running
    for entry in (three, two, one):
        table.end(entry, None)
    table.begin(make_attempt("d"), "/bin/x", make_run())
    changed = {report.place: report.command.task_id for report in table.take_changed()}

    assert {0: "a", 1: "d"} == changed
    assert 1 == table.running


def test_a_running_command_is_reported_again_each_minute() -> None:
    """Otherwise it would be said to be lost; a report that was not stored comes back."""
    now = [1_800_000_000.0]
    table = CommandTable(clock=lambda: now[0])
    entry = table.begin(make_attempt("a"), "/bin/x", make_run())
    [report] = table.take_changed()
    table.put_back([report])

    assert [report] == table.take_changed()
    assert [] == table.take_changed()
    now[0] += 61
    assert 1 == len(table.take_changed())
    table.end(entry, Archive("no"))
    table.stop(entry)
    assert ["archived"] == [one.command.state for one in table.take_changed()]


def test_a_command_that_was_killed_at_a_limit_is_counted_once() -> None:
    """By its limit; the others are not counted there."""
    metrics = ServiceMetrics()
    table = CommandTable(metrics)
    for limit in ("memory", "time", "", "memory"):
        entry = table.begin(make_attempt("a"), "/bin/x", make_run())
        table.end(entry, Retry(reason="killed"), limit=limit)
        table.end(entry, Retry(reason="killed"), limit=limit)
    told = metrics.render()[1].decode()

    assert 'pyasynq_service_commands_killed_total{queue="t",limit="memory"} 2' in told
    assert 'pyasynq_service_commands_killed_total{queue="t",limit="time"} 1' in told
    assert 2 == told.count("pyasynq_service_commands_killed_total{")


def test_the_end_of_an_output_is_read_across_what_is_kept(monkeypatch: Any) -> None:
    """From the beginning and the end of it, which are kept apart."""
    kept = KeptOutput()
    kept.add(b"a" * 10)
    assert b"aaa" == kept.read_end(3)
    kept.add(b"b" * (16 * 1_024 - 10) + b"cd")
    assert b"bcd" == kept.read_end(3)
    kept.add(b"e" * 1_000_000)
    assert b"e" * 2_000 == kept.read_end(2_000)
