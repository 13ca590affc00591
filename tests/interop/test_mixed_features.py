"""What workers, clients, schedulers and inspectors of both languages share, live on one Redis."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq import (
    Client,
    Inspector,
    Mux,
    Queue,
    Scheduler,
    SchedulerConfig,
    Semaphore,
    ServerConfig,
    Task,
    TaskFailedError,
    TaskState,
)
from pyasynq.errors import DuplicateTaskError
from pyasynq.events import LimitsIgnored
from pyasynq.info import CancelResult, CancelStatus
from tests.cli_runner import Cli
from tests.fix_engine import QUICK, Gate, do_nothing, serving
from tests.interop.asynqmon_program import Reply
from tests.interop.go_peer import GoError, GoPeer, bytes_of, task
from tests.interop.normal import Time, same
from tests.interop.steps import aggregate_payload
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pyasynq.info import SchedulerEntryInfo, ServerInfo
    from tests.interop.asynqmon_program import Asynqmon
    from tests.invariants import RedisClient

_PATIENCE = 30.0


async def _ask(peer: GoPeer, name: str, **arguments: Any) -> Any:
    """Make a call of the peer while the event loop goes on."""
    return await asyncio.to_thread(peer.call, name, **arguments)


async def _start_server(peer: GoPeer, script: dict[str, Any] | None = None, **config: Any) -> None:
    quick = {"concurrency": 2, "task_check_interval": 0.01, "retry_delay": 3_600, "shutdown_timeout": 1}
    await _ask(peer, "start_server", server="s", config=quick | {"script": script or {}} | config)


async def _until(look: Callable[[], Awaitable[Any]]) -> Any:
    """Look until there is something, and return it."""
    async with asyncio.timeout(_PATIENCE):
        while not (found := await look()):  # noqa: ASYNC110 - what is looked at is in Redis
            await asyncio.sleep(0.05)
    return found


@run_async
async def test_servers_and_what_they_run_are_seen_by_everybody(
    go_peer: GoPeer, board: Asynqmon, redis_url: str, redis_client: RedisClient
) -> None:
    """Both inspectors and asynqmon say the same of a server in Go and of one in Python."""
    gate = Gate()
    ours = ServerConfig(concurrency=7, queues={"here": 3, "both": 1}, strict_priority=True)
    async with serving(redis_url, gate, ours) as running, Inspector(redis_url) as inspector:
        here = (await running.client.enqueue("report:größe", b"<&>", queue="here", timeout=60)).id
        await _start_server(go_peer, queues={"there": 2, "both": 1})
        in_go = (await running.client.enqueue("export", b"{}", queue="there", deadline=_in(600))).id
        await gate.begun.wait()

        async def both_busy() -> Any:
            found = await inspector.servers()
            return found if [1, 1] == [len(one.active_workers) for one in found] else None

        # A server in Go tells of its work every five seconds.
        found = sorted(await _until(both_busy), key=lambda one: one.concurrency)
        assert [
            (2, {"there": 2, "both": 1}, False, "active", "", [(in_go, "export", b"{}", "there")]),
            (7, ours.queues, True, "active", "pyasynq", [(here, "report:größe", b"<&>", "here")]),
        ] == [_summary(one) for one in found]
        views = [_server_view(one) for one in found]
        theirs = await _ask(go_peer, "servers")
        for one in theirs:
            for worker in one["active_workers"]:
                worker["payload"] = bytes_of(worker["payload"])
        assert same(_timed(views), _timed(sorted(theirs, key=_concurrency)))
        shown = (await asyncio.to_thread(board.get, "servers"))["servers"]
        shown.sort(key=_concurrency)
        assert same([_shown(view) for view in views], _timed(shown))
        printed = await asyncio.to_thread(Cli(redis_url).json, "server", "ls")
        expected = [_printed_facts(one) for one in _by_id(theirs)]
        assert expected == [{name: one[name] for name in expected[0]} for one in _by_id(printed)]
        gate.open.set()
        await _ask(go_peer, "end_attempt", server="s", id=in_go, outcome={"kind": "succeed"})
        await _ask(go_peer, "stop_server", server="s")
    assert [] == await _ask(go_peer, "servers")


@run_async
async def test_a_server_with_limits_reports_a_server_in_go_that_knows_none(
    go_peer: GoPeer, redis_url: str, redis_client: RedisClient
) -> None:
    """A Go server on another queue is not reported."""
    await _start_server(go_peer, queues={"deliver": 1, "mail": 1})
    [record] = await _until(lambda: _ask(go_peer, "servers"))
    config = ServerConfig(queues={"deliver": Queue(max_run=1), "default": 1})
    async with serving(redis_url, do_nothing, config) as running:
        found = await running.recorder.wait(LimitsIgnored)
        assert ("deliver", record["pid"]) == (found.queue, found.pid)
        await running.next_round("peer_watch")
        assert [found] == running.recorder.of(LimitsIgnored)
    await _ask(go_peer, "stop_server", server="s")


@run_async
async def test_h18_scheduler_entries_are_read_both_ways(
    go_peer: GoPeer, board: Asynqmon, redis_url: str, redis_client: RedisClient
) -> None:
    """Expressions, tasks, options, times and what was enqueued."""
    options: Any = {"queue": "low", "max_retry": 3, "timeout": 90, "retention": 60}
    scheduler = Scheduler(redis_url, SchedulerConfig(heartbeat_interval=0.2))
    here = scheduler.register("@every 1s", "tick:größe", b"here", **options)
    await scheduler.start()
    await _ask(go_peer, "new_scheduler", scheduler="s", heartbeat_interval=0.2)
    in_go = await _ask(
        go_peer,
        "register_entry",
        scheduler="s",
        spec="@every 1s",
        task=task("tick:größe", b"in Go"),
        options=options,
    )
    await _ask(go_peer, "start_scheduler", scheduler="s")
    try:
        async with Inspector(redis_url) as inspector:

            async def all_fired() -> Any:
                found = await inspector.scheduler_entries()
                fired = [one for one in found if one.previous_enqueue_at is not None]
                return sorted(fired, key=lambda one: one.task.payload or b"") if len(fired) == 2 else None

            entries = await _until(all_fired)
            texts = ("MaxRetry(3)", 'Queue("low")', "Retention(1m0s)", "Timeout(1m30s)")
            assert [(here, b"here", texts), (in_go, b"in Go", texts)] == [
                (one.id, one.task.payload, tuple(sorted(one.options))) for one in entries
            ]
            theirs = await _ask(go_peer, "scheduler_entries")
            assert same(_timed([_entry_view(one) for one in entries]), _timed(_by_payload(theirs)))
            shown = (await asyncio.to_thread(board.get, "scheduler_entries"))["entries"]
            shown.sort(key=lambda one: one["task_payload"])
            assert [(one.id, one.spec, list(one.options)) for one in entries] == [
                (one["id"], one["spec"], one["options"]) for one in shown
            ]
            cli = Cli(redis_url)
            printed = _by_id(await asyncio.to_thread(cli.json, "cron", "ls"))
            alike = ("id", "spec", "type", "options")
            assert [{name: one[name] for name in alike} for one in _by_id(theirs)] == [
                {name: one[name] for name in alike} for one in printed
            ]
            for entry in (here, in_go):
                [*_, oldest] = await asyncio.to_thread(cli.json, "cron", "history", entry)
                [*_, event] = await _ask(go_peer, "scheduler_events", entry_id=entry, page_size=100)
                assert event["task_id"] == oldest["task_id"]
                first = (await inspector.scheduler_events(entry, page_size=100))[-1]
                event = (await _ask(go_peer, "scheduler_events", entry_id=entry, page_size=100))[-1]
                shown = await asyncio.to_thread(board.get, f"scheduler_entries/{entry}/enqueue_events")
                assert first.task_id == event["task_id"] == shown["events"][-1]["task_id"]
                assert first.enqueued_at is not None
                assert same(Time(first.enqueued_at.timestamp()), Time(event["enqueued_at"]))
                assert (await inspector.task_info("low", first.task_id)).type == "tick:größe"
    finally:
        await scheduler.shutdown()
        await _ask(go_peer, "stop_scheduler", scheduler="s")
    assert [] == await _ask(go_peer, "scheduler_entries")


@pytest.mark.parametrize("by", ["inspector", "asynqmon"])
@run_async
async def test_h16_asynqs_tools_cancel_what_python_runs(
    go_peer: GoPeer, board: Asynqmon, redis_url: str, redis_client: RedisClient, by: str
) -> None:
    """The handler is cancelled, and the task is retried, as Asynq has it."""
    gate = Gate()
    async with serving(redis_url, gate) as running, Inspector(redis_url) as inspector:
        task_id = (await running.client.enqueue("t")).id
        await gate.begun.wait()
        if by == "inspector":
            await _ask(go_peer, "cancel", id=task_id)
        else:
            path = f"queues/default/active_tasks/{task_id}:cancel"
            assert Reply(204, None) == await asyncio.to_thread(board.ask, "POST", path)
        await running.finished(task_id)
        await running.settled()
        assert gate.cancelled
        assert TaskState.RETRY is (await inspector.task_info("default", task_id)).state


@run_async
async def test_h16_our_inspector_cancels_what_go_runs(
    go_peer: GoPeer, redis_url: str, redis_client: RedisClient
) -> None:
    """Asynq's worker obeys and acknowledges nothing, and the answer says so."""
    await _start_server(go_peer)
    task_id = (await _ask(go_peer, "enqueue", task=task("t")))["id"]
    assert task_id == (await _ask(go_peer, "next_attempt", server="s", timeout=_PATIENCE))["id"]
    async with Inspector(redis_url) as inspector:
        sent = CancelResult("default", task_id, CancelStatus.SENT, TaskState.ACTIVE)
        assert [sent] == await inspector.cancel(task_id)
        assert await _ask(go_peer, "has_ended", server="s", id=task_id, timeout=_PATIENCE)
        await _ask(go_peer, "stop_server", server="s")
        info = await inspector.task_info("default", task_id)
    assert (TaskState.RETRY, "context canceled") == (info.state, info.last_error)


@run_async
async def test_h19_a_type_that_only_go_knows_is_left_to_go(
    go_peer: GoPeer, redis_url: str, redis_client: RedisClient
) -> None:
    """A Python server that was told to return such tasks spends none of their retries.

    When the task is due again, Redis wakes it at once; yet the server in Go, which polls, gets the task.
    """
    config = ServerConfig(on_unknown="return")
    async with serving(redis_url, Mux(), config, replace(QUICK, unknown_pause=1.0)) as running:
        task_id = (await running.client.enqueue("export", max_retry=0)).id
        await running.finished(task_id)
        await _start_server(go_peer, task_check_interval=1)
        attempt = await _ask(go_peer, "next_attempt", server="s", timeout=_PATIENCE)
        assert (task_id, 0) == (attempt["id"], attempt["retried"])
        await _ask(go_peer, "end_attempt", server="s", id=task_id, outcome={"kind": "succeed"})
        await _ask(go_peer, "stop_server", server="s")
    assert not redis_client.exists("asynq:{default}:failed")


@run_async
async def test_the_history_of_a_task_is_kept_while_go_runs_it(
    go_peer: GoPeer, redis_url: str, redis_client: RedisClient
) -> None:
    """The record of Go's attempts is only the last error, as in Asynq."""

    async def fail(task: Task) -> None:
        raise ValueError(task.type)

    async with Inspector(redis_url) as inspector:
        async with serving(redis_url, fail) as running:
            task_id = (await running.client.enqueue("t")).id
            await running.finished(task_id)
            await running.settled()
        await inspector.run_task("default", task_id)
        await _start_server(go_peer, {"t": {"kind": "fail", "text": "from Go"}})

        async def failed_again() -> Any:
            info = await inspector.task_info("default", task_id)
            return info if info.retried == 2 else None

        info = await _until(failed_again)
        await _ask(go_peer, "stop_server", server="s")
    assert "from Go" == info.last_error
    assert [True] == ["ValueError: t" in attempt.error for attempt in info.attempts]


@run_async
async def test_gos_aggregator_takes_members_of_both(
    go_peer: GoPeer, redis_url: str, redis_client: RedisClient
) -> None:
    """One task of them all, run by Go; nothing of the members is left."""
    await _start_server(go_peer, aggregate=True, group_grace_period=1, group_max_size=2)
    async with Client(redis_url) as client:
        await client.enqueue("event", b"here", group="g")
        await _ask(go_peer, "enqueue", task=task("event", b"in Go", group="g"))
    attempt = await _ask(go_peer, "next_attempt", server="s", timeout=_PATIENCE)
    payload = aggregate_payload([("event", b"here"), ("event", b"in Go")])
    assert ("aggregate:g", payload) == (attempt["type"], bytes_of(attempt["payload"]))
    await _ask(go_peer, "end_attempt", server="s", id=attempt["id"], outcome={"kind": "succeed"})
    await _ask(go_peer, "stop_server", server="s")
    assert not [key for key in redis_client.keys("asynq:{default}:*") if b":t:" in key or b":g:" in key]


@run_async
async def test_our_aggregator_takes_members_of_both(
    go_peer: GoPeer, redis_url: str, redis_client: RedisClient
) -> None:
    """One task of them all; nothing of the group is left, nor a lock of its members."""

    def digest(group: str, tasks: list[Task]) -> Task:
        payload = aggregate_payload([(one.type, one.payload) for one in tasks])
        return Task("digest", payload, queue="default", retention=60)

    # A Redis that was just started is given the time of a lease before sets are looked at.
    settings = replace(QUICK, lease=1, aggregation_interval=0.05)
    config = ServerConfig(group_aggregator=digest, group_max_size=2, queues={"default": 1})
    await _ask(go_peer, "enqueue", task=task("event", b"in Go", group="g", unique=600))
    async with serving(redis_url, do_nothing, config, settings) as running:
        await running.client.enqueue("event", b"here", group="g", unique=600)

        async def done() -> Any:
            return await _ask(go_peer, "list_tasks", queue="default", state="completed")

        [found] = await _until(done)
    payload = aggregate_payload([("event", b"here"), ("event", b"in Go")])
    assert ("digest", payload) == (found["type"], bytes_of(found["payload"]))
    assert {} == await _ask(go_peer, "groups", queue="default")
    assert not redis_client.keys("asynq:{default}:unique:*")


@run_async
async def test_the_semaphore_is_one_for_both(go_peer: GoPeer, redis_url: str) -> None:
    """While a handler in Go holds the only token, Python gets none, and the reverse."""
    await _start_server(go_peer)
    in_go = (await _ask(go_peer, "enqueue", task=task("t")))["id"]
    await _ask(go_peer, "next_attempt", server="s", timeout=_PATIENCE)
    held: Any = {"server": "s", "id": in_go, "scope": "printer", "tokens": 1}
    semaphore = Semaphore(redis_url, scope="printer", max_tokens=1)
    assert await _ask(go_peer, "acquire", **held)
    assert not await semaphore.acquire(task_id="here", deadline=_in(60))
    await _ask(go_peer, "release", **held)
    assert await semaphore.acquire(task_id="here", deadline=_in(60))
    assert not await _ask(go_peer, "acquire", **held)
    await semaphore.release(task_id="here")
    assert await _ask(go_peer, "acquire", **held)
    await semaphore.close()
    await _ask(go_peer, "end_attempt", server="s", id=in_go, outcome={"kind": "succeed"})
    await _ask(go_peer, "stop_server", server="s")


@run_async
async def test_a_lock_of_either_keeps_both_out_and_a_worker_of_either_releases_it(
    go_peer: GoPeer, redis_url: str, redis_client: RedisClient
) -> None:
    """The same type, payload and queue make the same lock."""

    async def enqueue_both(client: Client) -> None:
        await client.enqueue("t:größe", b"here", unique=600)
        await _ask(go_peer, "enqueue", task=task("t:größe", b"in Go", unique=600))
        with pytest.raises(GoError, match="task already exists"):
            await _ask(go_peer, "enqueue", task=task("t:größe", b"here", unique=600))
        with pytest.raises(DuplicateTaskError):
            await client.enqueue("t:größe", b"in Go", unique=600)

    async def all_done() -> bool:
        return not redis_client.keys("asynq:{default}:t:*")

    async with Client(redis_url) as client:
        await enqueue_both(client)
        await _start_server(go_peer, {"t:größe": {"kind": "succeed"}})
        await _until(all_done)
        await _ask(go_peer, "stop_server", server="s")
        await enqueue_both(client)
        async with serving(redis_url, do_nothing):
            await _until(all_done)
        await enqueue_both(client)


@run_async
async def test_h14_an_idle_python_worker_is_woken_for_the_tasks_of_a_go_client(
    go_peer: GoPeer, redis_url: str, redis_client: RedisClient
) -> None:
    """Redis tells it, also of a task that becomes due; it would look by itself an hour later."""
    settings = replace(QUICK, look_interval=3_600.0)
    async with serving(redis_url, do_nothing, settings=settings) as running:
        at_once: dict[str, Any] = {}
        for options in (at_once, at_once, {"process_in": 1}):
            task_id = (await _ask(go_peer, "enqueue", task=task("t", **options)))["id"]
            await running.finished(task_id)
            await running.settled()


@run_async
async def test_a_python_client_gets_the_result_of_what_go_runs(
    go_peer: GoPeer, redis_url: str, redis_client: RedisClient
) -> None:
    """The client also gets the error of a task that Go archived."""
    async with Client(redis_url) as client:
        good = (await client.enqueue("good", retention=60)).id
        bad = (await client.enqueue("bad")).id
        async with asyncio.TaskGroup() as waits:
            result = waits.create_task(client.result("default", good, _PATIENCE))
            end = waits.create_task(client.wait("default", bad, _PATIENCE))
            await _start_server(
                go_peer,
                {
                    "good": {"kind": "succeed", "result": b"from Go"},
                    "bad": {"kind": "skip", "text": "no such user"},
                },
            )
        assert (b"from Go", "archived") == (result.result(), end.result().end.value)
        with pytest.raises(TaskFailedError, match="no such user"):
            await client.result("default", bad, _PATIENCE)
    await _ask(go_peer, "stop_server", server="s")


def _concurrency(server: dict[str, Any]) -> int:
    return int(server["concurrency"])


def _printed_facts(server: dict[str, Any]) -> dict[str, Any]:
    """Return the facts of a server in Go's library by the names of `server ls`."""
    return {
        "id": server["id"],
        "host": server["host"],
        "pid": server["pid"],
        "state": server["status"],
        "running": len(server["active_workers"]),
        "slots": server["concurrency"],
        "queues": server["queues"],
        "strict": server["strict_priority"],
    }


def _by_id(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(entries, key=lambda one: one["id"])


def _in(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


def _summary(one: ServerInfo) -> Any:
    workers = [
        (worker.task_id, worker.task_type, worker.payload, worker.queue) for worker in one.active_workers
    ]
    return one.concurrency, one.queues, one.strict_priority, one.status, one.engine, workers


def _server_view(one: ServerInfo) -> dict[str, Any]:
    """Return our description of a server in the words of the peer."""
    workers = [
        {
            "task_id": worker.task_id,
            "task_type": worker.task_type,
            "payload": worker.payload,
            "queue": worker.queue,
            "started": _unix(worker.started),
            "deadline": _unix(worker.deadline),
        }
        for worker in one.active_workers
    ]
    return {
        "id": one.id,
        "host": one.host,
        "pid": one.pid,
        "concurrency": one.concurrency,
        "queues": dict(one.queues),
        "strict_priority": one.strict_priority,
        "started": _unix(one.started),
        "status": one.status,
        "active_workers": workers,
    }


def _shown(view: dict[str, Any]) -> dict[str, Any]:
    """Return a view of a server in the words of asynqmon."""
    workers = [
        {
            "task_id": worker["task_id"],
            "queue": worker["queue"],
            "task_type": worker["task_type"],
            "task_payload": worker["payload"].decode(),
            "start_time": Time(worker["started"]),
        }
        for worker in view["active_workers"]
    ]
    return {
        "id": view["id"],
        "host": view["host"],
        "pid": view["pid"],
        "concurrency": view["concurrency"],
        "queue_priorities": view["queues"],
        "strict_priority_enabled": view["strict_priority"],
        "start_time": Time(view["started"]),
        "status": view["status"],
        "active_workers": workers,
    }


def _entry_view(one: SchedulerEntryInfo) -> dict[str, Any]:
    return {
        "id": one.id,
        "spec": one.spec,
        "type": one.task.type,
        "payload": one.task.payload,
        "options": list(one.options),
        "next": _unix(one.next_enqueue_at),
        "prev": _unix(one.previous_enqueue_at),
    }


def _by_payload(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    decoded = [{**one, "payload": bytes_of(one["payload"])} for one in entries]
    return sorted(decoded, key=lambda one: one["payload"])


def _timed(value: Any) -> Any:
    """Return moments as such."""
    if isinstance(value, list):
        return [_timed(one) for one in value]
    if not isinstance(value, dict):
        return value
    view = {name: _timed(one) for name, one in value.items()}
    for name in view.keys() & {"started", "deadline", "start_time", "next", "prev"}:
        moment = view[name]
        view[name] = Time(datetime.fromisoformat(moment).timestamp() if isinstance(moment, str) else moment)
    return view


def _unix(moment: datetime | None) -> float:
    return 0.0 if moment is None else moment.timestamp()
