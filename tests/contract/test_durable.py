"""Enqueues that replicas are to have, on a primary with real replicas: with one, a stopped one, and none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pyasynq import (
    App,
    Client,
    DuplicateTaskError,
    InvalidOptionError,
    NotDurableError,
    Scheduler,
    ServerConfig,
    Task,
    testing,
)
from pyasynq.task import EnqueueStatus
from tests.fix_proxy import Cut, Proxy
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fix_drivers import ClientFace
    from tests.fix_replica import Replicated

    MakeClient = Callable[..., ClientFace]


def script_calls(servers: Replicated) -> int:
    """Return how many EVALSHA the primary has run."""
    stats: Any = servers.primary.info("commandstats")
    return int(stats["cmdstat_evalsha"]["calls"])


def test_a_durable_task_is_on_the_replica_when_its_enqueue_returns(
    make_client: MakeClient, replicated: Replicated
) -> None:
    """Its hash and its place; what was written to be waited for is gone after a second."""
    replica = replicated.add_replica()
    info = make_client(replicated.url).enqueue("email:deliver", b"{}", durable=True)
    assert [info.id.encode()] == replica.lrange("asynq:{default}:pending", 0, -1)
    assert 1 == replica.exists(f"asynq:{{default}}:t:{info.id}")
    assert replicated.primary.pttl("asynq:{default}:x:fence") <= 1_000


def test_a_stopped_replica_makes_the_task_not_durable_and_keeps_it(
    make_client: MakeClient, replicated: Replicated
) -> None:
    """The error carries the task, and how many have it."""
    replicated.add_replica()
    replicated.pause_replica()
    with pytest.raises(NotDurableError, match=r"none confirmed it: 1 are connected, and no more") as raised:
        make_client(replicated.url, timeout=1.0).enqueue("email:deliver", task_id="one", durable=True)
    assert ("one", 0, 1) == (raised.value.info.id, raised.value.replicas, raised.value.wanted)
    assert [b"one"] == replicated.primary.lrange("asynq:{default}:pending", 0, -1)


def test_without_any_replica_the_error_says_so(make_client: MakeClient, replicated: Replicated) -> None:
    """The error names the remedy."""
    with pytest.raises(NotDurableError, match="the server has none; give it one"):
        make_client(replicated.url, timeout=1.0).enqueue("email:deliver", durable=True)


@pytest.mark.long
def test_as_many_replicas_are_waited_for_as_are_wanted(
    make_client: MakeClient, replicated: Replicated
) -> None:
    """One of two is too few for two, and enough for True."""
    replicated.add_replica()
    replicated.add_replica()
    client = make_client(replicated.url, timeout=3.0)
    client.enqueue("email:deliver", durable=2)
    replicated.pause_replica()
    with pytest.raises(NotDurableError) as raised:
        client.enqueue("email:deliver", durable=2)
    assert (1, 2) == (raised.value.replicas, raised.value.wanted)
    client.enqueue("email:deliver", durable=True)


def test_tasks_that_need_no_replica_do_not_wait_for_one(
    make_client: MakeClient, replicated: Replicated
) -> None:
    """Their enqueue sends no `WAIT` and writes no fence key."""
    client = make_client(replicated.url)
    client.enqueue("email:deliver", durable=False)
    client.enqueue_many([Task("email:deliver"), Task("email:deliver", durable=False)])
    stats: Any = replicated.primary.info("commandstats")
    assert "cmdstat_wait" not in stats
    assert 0 == replicated.primary.exists("asynq:{default}:x:fence")


def test_a_batch_waits_once_for_each_chunk_and_marks_what_is_not_durable(
    make_client: MakeClient, replicated: Replicated
) -> None:
    """Calls without the option are not affected; results stay true, since the tasks will run."""
    tasks = [Task("a", durable=True), Task("b"), Task("c", queue="other", durable=3)]
    results = make_client(replicated.url, timeout=1.0).enqueue_many(tasks, on_error="return")
    assert [True, True, True] == [bool(result) for result in results]
    assert [NotDurableError, type(None), NotDurableError] == [type(result.error) for result in results]
    stats: Any = replicated.primary.info("commandstats")
    assert 1 == stats["cmdstat_wait"]["calls"]


def test_a_refused_task_is_refused_whatever_the_replicas_say(
    make_client: MakeClient, replicated: Replicated
) -> None:
    """A duplicate was not enqueued, so it cannot be not durable; one that is ignored neither."""
    client = make_client(replicated.url, timeout=1.0)
    client.enqueue("email:deliver", unique=60)
    with pytest.raises(DuplicateTaskError):
        client.enqueue("email:deliver", unique=60, durable=True)
    info = client.enqueue("email:deliver", unique=60, durable=True, on_duplicate="ignore")
    assert EnqueueStatus.IGNORED is info.enqueue_status
    with pytest.raises(NotDurableError) as raised:
        client.enqueue("email:deliver", unique=60, durable=True, on_duplicate="return_existing")
    assert EnqueueStatus.EXISTING is raised.value.info.enqueue_status


def test_a_lost_reply_is_repeated_and_then_waited_for(
    make_client: MakeClient, replicated: Replicated
) -> None:
    """The second send writes nothing; the replica has the task all the same when the call returns."""
    replica = replicated.add_replica()
    with Proxy(replicated.url) as proxy:
        client = make_client(proxy.url)
        client.enqueue("email:deliver", task_id="before", durable=True)
        proxy.cut(Cut.BEFORE_REPLY, containing=b"EVALSHA")
        client.enqueue("email:deliver", task_id="one", durable=True)
        client.close()
    assert [b"one", b"before"] == replica.lrange("asynq:{default}:pending", 0, -1)


def test_a_connection_that_breaks_while_replicas_are_asked_is_told_and_not_repeated(
    make_client: MakeClient, replicated: Replicated
) -> None:
    """A task that ran meanwhile would run again."""
    replicated.add_replica()
    with Proxy(replicated.url) as proxy:
        client = make_client(proxy.url)
        client.enqueue("email:deliver", task_id="before", durable=True)
        before = script_calls(replicated)
        proxy.cut(Cut.BEFORE_REPLY, containing=b"WAIT")
        with pytest.raises(NotDurableError, match="broke while they were asked"):
            client.enqueue("email:deliver", task_id="one", durable=True)
        client.enqueue("email:deliver", task_id="after", durable=True)
        client.close()
    assert 2 == script_calls(replicated) - before


def test_a_user_without_the_right_to_wait_is_told(make_client: MakeClient, replicated: Replicated) -> None:
    """The task is enqueued."""
    replicated.primary.acl_setuser("default", enabled=True, commands=["-wait"])
    with pytest.raises(NotDurableError, match="WAIT was refused: NOPERM"):
        make_client(replicated.url).enqueue("email:deliver", task_id="one", durable=True)
    assert [b"one"] == replicated.primary.lrange("asynq:{default}:pending", 0, -1)


def test_events_are_published_along_with_durable_tasks(
    make_client: MakeClient, replicated: Replicated
) -> None:
    """After the replicas were waited for."""
    replica = replicated.add_replica()
    make_client(replicated.url, publish_events=True).enqueue("email:deliver", durable=True)
    assert 1 == replicated.primary.xlen("asynq:{default}:x:events")
    assert 1 == replica.llen("asynq:{default}:pending")


@pytest.mark.parametrize("durable", [0, -1, 1.5, "yes", None])
def test_a_number_of_replicas_that_cannot_be_is_refused(
    make_client: MakeClient, redis_url: str, durable: object
) -> None:
    """Before anything is sent."""
    with pytest.raises(InvalidOptionError, match="how many replicas"):
        make_client(redis_url).enqueue("email:deliver", durable=durable)


def test_schedules_refuse_durable_tasks() -> None:
    """An error could not be reported; a task declared so can be scheduled without the option."""
    app = App("redis://nowhere.invalid")

    @app.task("report", durable=True)
    async def report() -> None: ...

    with pytest.raises(InvalidOptionError, match="set durable=False there"):
        Scheduler("redis://nowhere.invalid").register("@daily", "report", durable=True)
    with pytest.raises(InvalidOptionError, match="durable=True"):
        app.schedule("@daily", report.task())
    with pytest.raises(InvalidOptionError, match="durable=True"):
        app.cron("@daily")(report)
    app.cron("@daily", durable=False)(report)


def test_aggregators_refuse_durable_aggregates() -> None:
    """The tasks stay in their group."""
    app = App("redis://nowhere.invalid")

    @app.aggregator
    def collect(group: str, tasks: list[Task]) -> Task:
        return Task("digest", durable=True)

    with testing.use(app, config=ServerConfig(group_max_size=1)) as kit:
        kit.sync_client.enqueue("line", group="g")
        with pytest.raises(InvalidOptionError, match="set durable=False there"):
            kit.drain_sync()
        assert 1 == kit.inspector.queue_info("default").aggregating


def test_typed_tasks_are_durable_by_option(replicated: Replicated) -> None:
    """It is an option of the declaration or of the call."""
    replica = replicated.add_replica()
    app = App(replicated.url)

    @app.task("report")
    async def report() -> None: ...

    report.options(durable=True).enqueue_sync()
    assert 1 == replica.llen("asynq:{default}:pending")
    app.close_sync()


@run_async
async def test_middleware_hands_on_that_a_task_is_not_durable(replicated: Replicated) -> None:
    """The result has the task's id and a `NotDurableError`, in a batch too."""

    async def through(task: Task, call_next: Any) -> Any:
        return await call_next(task)

    async with Client(replicated.url, timeout=1.0, middleware=[through]) as client:
        [result] = await client.enqueue_many(
            [Task("email:deliver", task_id="one", durable=True)], on_error="return"
        )
    assert ("one", True, NotDurableError) == (result.task_id, bool(result), type(result.error))


def test_under_test_replicas_are_not_waited_for() -> None:
    """The server of a kit is alone."""
    app = App("redis://nowhere.invalid")

    @app.task("report", durable=2)
    async def report() -> None: ...

    with testing.use(app):
        report.enqueue_sync()
