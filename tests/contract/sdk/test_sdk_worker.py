"""`start_worker` on the real Redis of a test: table, middlewares, configurations, and ends of tasks."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq import (
    Client,
    ConfigurationError,
    Inspector,
    InvalidOptionError,
    ServerStateError,
)
from pyasynq.operations import Operator
from pyasynq.sdk import EndReport, SdkClient, TaskReq, WorkerEndedError, enqueue, start_worker, task_run
from pyasynq.sdk.worker import enqueue_sync
from tests.fix_sdk import ADMIN, TRANSPORTS, configure, over
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq import Task, TaskContext

pytestmark = pytest.mark.usefixtures("redis_client")


class Notes:
    """What handlers have noted, and a wait for it."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self._come = asyncio.Event()

    def add(self, note: Any) -> None:
        """Note something, on the loop."""
        self.seen.append(note)
        self._come.set()

    async def wait(self, number: int = 1) -> list[Any]:
        """Wait until this much was noted."""
        return await self.wait_for(lambda: len(self.seen) >= number)

    async def wait_for(self, condition: Callable[[], bool]) -> list[Any]:
        """Wait until a condition about the notes is true."""
        while not condition():
            self._come.clear()
            await asyncio.wait_for(self._come.wait(), 30)
        return self.seen


@pytest.mark.parametrize("transport", TRANSPORTS)
@run_async
async def test_the_articles_table_runs_inside_its_middlewares_in_order(
    redis_url: str, transport: str
) -> None:
    """The first one is outermost; a handler is async or plain, takes (context, task) or fields of params."""
    notes = Notes()
    loop = asyncio.get_running_loop()

    def middleware(name: str) -> Any:
        async def one(task: Task, call_next: Any) -> Any:
            notes.add(f"{name} in")
            try:
                return await call_next(task)
            finally:
                notes.add(f"{name} out")

        return one

    async def dump_feature(context: TaskContext, task: Task) -> None:
        notes.add((context.task_id, json.loads(task.payload or b"")))

    def resize(context: TaskContext, task: Task) -> None:
        loop.call_soon_threadsafe(notes.add, (context.task_id, task.payload))

    async def deliver(order_id: int, note: str = "") -> None:
        notes.add((order_id, note))

    async with (
        over(transport, redis_url, dumpfeature={}, resize={}, deliver={}) as bed,
        await start_worker(
            {"dumpfeature": dump_feature, "resize": resize, "deliver": deliver},
            middlewares=[middleware("a"), middleware("b"), task_run],
            team="starmap",
            **bed.arguments,
        ),
    ):
        await enqueue(TaskReq(task_id=1, task_name="dumpfeature", params={"path": "/tmp/1", "id": 1}))
        seen = await notes.wait(5)
        assert ["a in", "b in", ("1", {"path": "/tmp/1", "id": 1}), "b out", "a out"] == seen
        await enqueue(TaskReq(task_name="deliver", params={"order_id": 7}))
        await notes.wait(10)
        await enqueue(TaskReq(task_id="r", task_name="resize"))
        await notes.wait(15)
    assert (7, "") in notes.seen
    assert ("r", b"{}") in notes.seen


@pytest.mark.parametrize("transport", TRANSPORTS)
@run_async
async def test_a_number_is_one_task_until_it_has_ended(redis_url: str, transport: str) -> None:
    """As the short form of the HTTP API: a repeat finds it, and starts it again once it is completed."""
    notes, go_on = Notes(), asyncio.Event()

    async def dump(context: TaskContext, task: Task) -> None:
        notes.add(task.payload)
        await go_on.wait()

    async with (
        over(transport, redis_url, dump={"retention": 3600.0, "max_retry": 3}) as bed,
        await start_worker({"dump": dump}, **bed.arguments) as worker,
        Client(redis_url) as client,
    ):
        first = await worker.enqueue(TaskReq(task_id=1, task_name="dump", params=[1]))
        await notes.wait()
        second = await worker.enqueue(TaskReq(task_id=1, task_name="dump", params=[2]))
        assert ((first.id, first.existing), (second.existing, second.state)) == (
            ("1", False),
            (True, "active"),
        )
        go_on.set()
        info = (await client.wait("dump", "1", 20)).info
        assert info is not None
        assert (3, "completed") == (info.max_retry, str(info.state))
        again = await worker.enqueue(TaskReq(task_id=1, task_name="dump", params=[3]))
        assert not again.existing
        assert [b"[1]", b"[3]"] == await notes.wait(2)


@pytest.mark.parametrize("transport", TRANSPORTS)
@run_async
async def test_it_obeys_changes_of_its_configurations_while_it_runs(redis_url: str, transport: str) -> None:
    """MaxRun rises from 1 to 3: the worker stores the limit, which every worker of the queue obeys."""
    notes, go_on = Notes(), asyncio.Event()

    async def dump(context: TaskContext, task: Task) -> None:
        notes.add(context.task_id)
        await go_on.wait()

    async with (
        over(transport, redis_url, dump={"max_run": 1}) as bed,
        await start_worker({"dump": dump}, **bed.arguments) as worker,
        Inspector(redis_url) as inspector,
    ):
        for number in range(6):
            await worker.enqueue(TaskReq(task_id=number, task_name="dump"))
        await notes.wait()
        assert 1 == (await inspector.queue_info("dump")).active
        await configure(redis_url, dump={"max_run": 3})
        await notes.wait(3)
        assert 3 == (await inspector.queue_info("dump")).active
        go_on.set()
        await notes.wait(6)


@pytest.mark.parametrize("transport", TRANSPORTS)
@run_async
async def test_the_newest_retry_rule_decides(redis_url: str, transport: str) -> None:
    """Also for tasks that were enqueued under another one."""
    notes = Notes()

    async def dump(context: TaskContext, task: Task) -> None:
        notes.add(context.retried)
        if not context.retried:
            await configure(redis_url, dump={"retry": [0.0]})
            await bed.refresh(worker)
            raise ValueError("not yet")

    async with (
        over(transport, redis_url, dump={"retry": [3600.0]}) as bed,
        await start_worker({"dump": dump}, **bed.arguments) as worker,
    ):
        await worker.enqueue(TaskReq(task_name="dump"))
        assert [0, 1] == await notes.wait(2)


@pytest.mark.parametrize("transport", TRANSPORTS)
@run_async
async def test_a_type_that_is_configured_later_is_taken_up_and_a_deleted_one_is_dropped(
    redis_url: str, transport: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a restart; the start names it, with the most similar name."""
    caplog.set_level(logging.INFO, "pyasynq.sdk")
    notes = Notes()

    async def note(context: TaskContext, task: Task) -> None:
        notes.add(task.type)

    async with (
        over(transport, redis_url, dump={}) as bed,
        await start_worker({"dump": note, "dumb": note}, **bed.arguments) as worker,
        Operator(redis_url, ADMIN) as operator,
    ):
        assert "'dumb' is not a configured task type; did you mean 'dump'?" in caplog.text
        with pytest.raises(InvalidOptionError, match=r"task_name.*[Dd]id you mean 'dump'"):
            await worker.enqueue(TaskReq(task_name="dumb"))
        await configure(redis_url, dumb={})
        await worker.enqueue(TaskReq(task_name="dumb"))
        assert ["dumb"] == await notes.wait()
        await operator.delete_type_configuration("dumb")
        await bed.refresh(worker)
        await enqueue_by_hand(redis_url, "dumb")
        assert "dumb is configured no longer" in caplog.text
        async with Inspector(redis_url) as inspector:
            assert 1 == (await inspector.queue_info("dumb")).pending


async def enqueue_by_hand(redis_url: str, queue: str) -> None:
    """Enqueue a task whose type has no configuration."""
    async with Client(redis_url) as client:
        await client.enqueue(queue, queue=queue)


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(
    ("act", "outcome"),
    [("succeed", "succeeded"), ("fail", "archived"), ("kill", "archived"), ("delete", "deleted")],
)
@run_async
async def test_every_end_reaches_on_finished(redis_url: str, transport: str, act: str, outcome: str) -> None:
    """Also when an operator has killed the task, or has deleted it by hand."""
    ends, started = Notes(), asyncio.Event()

    async def note_end(end: EndReport) -> None:
        ends.add(end)

    async def dump(context: TaskContext, task: Task) -> None:
        started.set()
        if act == "fail":
            raise ValueError("broken")
        if act == "kill":
            await asyncio.Event().wait()

    types: dict[str, dict[str, Any]] = {"dump": {"max_retry": 0}, "t-finished": {}}
    async with (
        over(transport, redis_url, **types) as bed,
        await start_worker({"dump": dump}, team="t", on_finished=note_end, **bed.arguments) as worker,
        Operator(redis_url, ADMIN) as operator,
    ):
        if act == "delete":
            await operator.pause_queue("dump")
        await worker.enqueue(TaskReq(task_id=9, task_name="dump"))
        if act == "kill":
            await started.wait()
            await operator.cancel_task("dump", "9", "archive", reason="test")
        if act == "delete":
            await operator.delete_task("dump", "9")
        [end] = await ends.wait()
    assert ("9", "dump", outcome) == (end.task_id, end.task_name, end.outcome)
    assert ("broken" in end.error) == (act == "fail")


@pytest.mark.parametrize("transport", TRANSPORTS)
@run_async
async def test_an_end_is_told_after_a_restart_and_until_it_is_taken(redis_url: str, transport: str) -> None:
    """A task that has ended while no worker ran, and a function that failed: same key each time."""
    told: list[EndReport] = []
    come = asyncio.Event()

    async def fail_once(end: EndReport) -> None:
        told.append(end)
        if len(told) == 1:
            raise OSError("the database is away")
        come.set()

    async def dump(context: TaskContext, task: Task) -> None:
        return None

    types: dict[str, dict[str, Any]] = {"dump": {}, "t-finished": {"retry": [0.0]}}
    async with over(transport, redis_url, **types) as bed:
        async with (
            SdkClient(team="t", tell_endings=True, **bed.arguments) as client,
            Operator(redis_url, ADMIN) as operator,
        ):
            await client.enqueue(TaskReq(task_id=3, task_name="dump"))
            await operator.delete_task("dump", "3")
        async with await start_worker({"dump": dump}, team="t", on_finished=fail_once, **bed.arguments):
            await asyncio.wait_for(come.wait(), 30)
    assert told[0] == told[1]
    assert told[0].key


@pytest.mark.parametrize("transport", TRANSPORTS)
@run_async
async def test_a_worker_that_cannot_start_raises_the_reason(redis_url: str, transport: str) -> None:
    """With `on_fatal` it is called instead; both times nothing is left running."""
    heard: list[BaseException] = []

    async def dump(context: TaskContext, task: Task) -> None:
        return None

    async with over(transport, redis_url) as bed:
        with pytest.raises(ConfigurationError, match=r"'dump' is not a configured task type; .* types"):
            await start_worker({"dump": dump}, **bed.arguments)
        worker = await start_worker({"dump": dump}, on_fatal=heard.append, **bed.arguments)
    assert [ConfigurationError] == [type(one) for one in heard]
    assert not worker.is_running
    await worker.close()
    with pytest.raises(ServerStateError, match="no worker"):
        await enqueue(TaskReq(task_name="dump"))


@pytest.mark.parametrize("transport", TRANSPORTS)
@run_async
async def test_a_worker_that_dies_later_tells_the_reason(redis_url: str, transport: str) -> None:
    """Here a plain handler that hangs far beyond its time holds the worker's only slot."""
    heard: list[BaseException] = []
    died, go_on = asyncio.Event(), threading.Event()

    async def note_death(error: BaseException) -> None:
        heard.append(error)
        died.set()

    def hang(context: TaskContext, task: Task) -> None:
        go_on.wait(60)

    async with over(transport, redis_url, dump={"timeout": 1.0}) as bed:
        worker = await start_worker(
            {"dump": hang},
            concurrency=1,
            overdue_limit=0.1,
            shutdown_timeout=0.1,
            on_fatal=note_death,
            **bed.arguments,
        )
        try:
            await worker.enqueue(TaskReq(task_name="dump"))
            await worker.wait()
            await died.wait()
        finally:
            go_on.set()
            await worker.close()
    left = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*left, return_exceptions=True)  # the handler ends in its thread
    [error] = heard
    assert isinstance(error, WorkerEndedError)
    assert "hold its slots" in str(error)


@run_async
async def test_operators_see_the_team_and_the_types_that_it_serves(redis_url: str) -> None:
    """The server has the team's name, and the types have summary and version."""

    async def dump(context: TaskContext, task: Task) -> None:
        """Dump the features of a data set."""

    async def deliver(order_id: int) -> None:
        """Deliver an order."""

    await configure(redis_url, dump={}, deliver={})
    async with (
        await start_worker(
            {"dump": dump, "deliver": deliver}, redis=redis_url, team="starmap", version="2026.11"
        ),
        Operator(redis_url, ADMIN) as operator,
    ):
        # The worker writes its record after its start.
        while not (servers := await operator.servers()):  # noqa: ASYNC110 - a record has no event
            await asyncio.sleep(0.01)
        [server] = servers
        assert ("starmap", {"dump": 1, "deliver": 1}) == (server.team, dict(server.queues))
        types = {one.type: one for one in await operator.task_types()}
    assert ("dump", "Dump the features of a data set.", "2026.11") == (
        types["dump"].queue,
        types["dump"].summary,
        types["dump"].version,
    )
    assert ["order_id"] == (types["deliver"].schema or {})["required"]


@pytest.mark.parametrize("transport", TRANSPORTS)
@run_async
async def test_blocking_code_enqueues_from_its_thread(redis_url: str, transport: str) -> None:
    """As a view of Django does; on the worker's loop it would block for ever, and is refused."""
    notes = Notes()

    async def dump(context: TaskContext, task: Task) -> None:
        notes.add(context.task_id)

    async with (
        over(transport, redis_url, dump={}) as bed,
        await start_worker({"dump": dump}, **bed.arguments),
    ):
        with pytest.raises(ServerStateError, match="await enqueue"):
            enqueue_sync(TaskReq(task_name="dump"))
        await asyncio.to_thread(enqueue_sync, TaskReq(task_id=5, task_name="dump"))
        assert ["5"] == await notes.wait()


@run_async
async def test_task_run_records_begin_and_end(redis_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """In the log, and as published events of the queue."""
    caplog.set_level(logging.INFO, "pyasynq.task")
    began = time.monotonic()
    kinds: list[str] = []
    following = asyncio.Event()

    async def dump(context: TaskContext, task: Task) -> None:
        raise ValueError("broken")

    async with (
        over("redis", redis_url, dump={"max_retry": 0}) as bed,
        await start_worker({"dump": dump}, middlewares=[task_run], **bed.arguments) as worker,
        Operator(redis_url, ADMIN) as operator,
    ):

        async def enqueue_often() -> None:
            """Until the follower has begun: it sees what happens from then on."""
            while not following.is_set():
                await worker.enqueue(TaskReq(task_id=1, task_name="dump"))

        enqueuing = asyncio.create_task(enqueue_often())
        async for event in operator.follow(["dump"], seconds=60):
            following.set()
            kinds.append(event.kind)
            if event.kind == "archived":
                break
        await enqueuing
    begin, end, *_ = (record for record in caplog.records if record.name == "pyasynq.task")
    assert ("task 1 begins", "dump") == (begin.getMessage(), begin.task_type)  # type: ignore[attr-defined]
    assert end.getMessage().endswith("ValueError: broken")
    assert "failed" == end.outcome  # type: ignore[attr-defined]
    assert 0 <= end.seconds <= time.monotonic() - began  # type: ignore[attr-defined]
    assert end.host  # type: ignore[attr-defined]
    assert "archived" == kinds[-1]
