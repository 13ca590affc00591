"""The inspector against a real server: what it tells of queues, tasks and servers. Blocking and asyncio."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq import inspector, sync
from pyasynq._broker.servers import write_server_state
from pyasynq._wire.messages import ServerInfo as ServerRecord
from pyasynq._wire.messages import WorkerInfo as WorkerRecord
from pyasynq.errors import ClientClosedError, InvalidOptionError, QueueNotFoundError, TaskNotFoundError
from pyasynq.task import TaskState
from tests.factories import NOW

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.factories import Tasks
    from tests.fix_broker import Perform

    Ask = Callable[..., Any]


class _Clock:
    def now(self) -> Any:
        return NOW

    redis_now = now

    def monotonic(self) -> float:
        return 0.0


@pytest.fixture(params=["asyncio", "blocking"])
def ask(request: pytest.FixtureRequest, redis_url: str, tasks: Tasks) -> Iterator[Ask]:
    """Return a function that calls a method of the inspector by name."""
    if request.param == "blocking":
        with sync.Inspector(redis_url, clock=_Clock()) as blocking:
            yield lambda method, *args, **named: getattr(blocking, method)(*args, **named)
        return

    async def call(method: str, *args: Any, **named: Any) -> Any:
        async with inspector.Inspector(redis_url, clock=_Clock()) as asynchronous:
            return await getattr(asynchronous, method)(*args, **named)

    yield lambda method, *args, **named: asyncio.run(call(method, *args, **named))


def _ids(found: list[Any]) -> list[str]:
    return [task.id for task in found]


def test_queues_are_named_in_order(ask: Ask, tasks: Tasks) -> None:
    """Every queue that ever had a task."""
    tasks.pending("a")
    assert ["default"] == ask("queues")


def test_a_queue_is_counted_by_states(ask: Ask, tasks: Tasks) -> None:
    """One of each that is asked for, and what is still to be done in sum."""
    tasks.pending("a", "b")
    tasks.active("c")
    tasks.put(TaskState.RETRY, "d")
    tasks.put(TaskState.COMPLETED, "e", retention=60, completed_at=NOW.seconds - 60)
    tasks.put(TaskState.ARCHIVED, "f")
    info = ask("queue_info", "default")
    counts = (info.pending, info.active, info.scheduled, info.retry, info.completed, info.archived)
    assert (2, 1, 0, 1, 1, 1) == counts
    assert (6, 4) == (info.size, info.unfinished)
    assert NOW.to_datetime() == info.timestamp


def test_a_queue_that_never_was_is_an_error(ask: Ask) -> None:
    """A misspelt name must not look like an empty queue."""
    for method, arguments in (("queue_info", ()), ("list_tasks", ("pending",)), ("task_info", ("a",))):
        with pytest.raises(QueueNotFoundError, match="'nope' does not exist"):
            ask(method, "nope", *arguments)


def test_pages_of_pending_tasks_come_in_the_order_of_processing(ask: Ask, tasks: Tasks) -> None:
    """Page numbers count from 1; beyond the last page lies nothing."""
    tasks.pending(*"abcde")
    pages = [_ids(ask("list_tasks", "default", "pending", page=page, page_size=2)) for page in (1, 2, 3, 4)]
    assert [["a", "b"], ["c", "d"], ["e"], []] == pages


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"state": "aggregating"}, "group"),
        ({"state": "pending", "group": "g"}, "group"),
        ({"state": "runing"}, "state"),
        ({"state": "pending", "page": 0}, "page"),
        ({"state": "pending", "page_size": 0}, "page_size"),
    ],
)
def test_states_and_pages_that_do_not_exist_are_refused(
    ask: Ask, tasks: Tasks, arguments: dict[str, Any], named: str
) -> None:
    """The error names the argument."""
    tasks.pending("a")
    with pytest.raises(InvalidOptionError, match=f"^{named}="):
        ask("list_tasks", "default", **arguments)


def test_an_active_task_names_its_server_and_the_end_of_its_lease(ask: Ask, tasks: Tasks) -> None:
    """Both are in Redis; a server in Go does not write its name."""
    later = NOW.seconds + 20
    tasks.active("a", token="server-1/17", lease=later)
    tasks.active("b", token="", lease=NOW.seconds)
    mine, other = ask("list_tasks", "default", TaskState.ACTIVE)
    assert ("server-1", datetime.fromtimestamp(later, UTC)) == (mine.server_id, mine.lease_expires_at)
    assert ("", False, True) == (other.server_id, mine.is_orphaned, other.is_orphaned)


def test_a_task_that_is_not_active_has_no_server_and_no_lease(ask: Ask, tasks: Tasks) -> None:
    """A retry's score is when it is due."""
    tasks.put(TaskState.RETRY, "a", score=NOW.seconds + 5)
    info = ask("task_info", "default", "a")
    assert ("", None) == (info.server_id, info.lease_expires_at)
    assert NOW.to_datetime() + timedelta(seconds=5) == info.next_process_at.replace(
        microsecond=NOW.microseconds
    )


def test_one_task_is_described(ask: Ask, tasks: Tasks) -> None:
    """Its state, and what its message says."""
    tasks.active("a", type="email", payload=b"{}", retry=7, extra={"result": b"half"})
    info = ask("task_info", "default", "a")
    assert (TaskState.ACTIVE, "email", b"{}", 7, b"half") == (
        info.state, info.type, info.payload, info.max_retry, info.result
    )  # fmt: skip


def test_a_task_that_does_not_exist_is_an_error(ask: Ask, tasks: Tasks) -> None:
    """The error names task and queue."""
    tasks.pending("a")
    with pytest.raises(TaskNotFoundError, match="id=b in queue 'default'"):
        ask("task_info", "default", "b")


def test_live_servers_are_listed_with_what_they_run(ask: Ask, perform: Perform) -> None:
    """The record and its tasks come together; what the wire calls server_id is the server's id."""
    started = datetime(2026, 1, 2, tzinfo=UTC)
    record = ServerRecord(
        host="h",
        pid=7,
        server_id="s",
        concurrency=4,
        queues={"default": 1},
        strict_priority=False,
        status="active",
        start_time=started,
        active_worker_count=1,
        engine="pyasynq",
    )
    worker = WorkerRecord(
        host="h",
        pid=7,
        server_id="s",
        task_id="a",
        task_type="email",
        task_payload=b"{}",
        queue="default",
        start_time=started,
        deadline=None,
    )
    perform(write_server_state(record, [worker], now=NOW))
    [server] = ask("servers")
    assert [server] == ask("servers", "default")
    assert [] == ask("servers", "other")
    assert ("s", "h", 7, "active", 4, {"default": 1}) == (
        server.id, server.host, server.pid, server.status, server.concurrency, server.queues
    )  # fmt: skip
    assert (started, "pyasynq") == (server.started, server.engine)
    assert [("a", "email", "default")] == [
        (worker.task_id, worker.task_type, worker.queue) for worker in server.active_workers
    ]
    assert [replace(server, active_workers=())] == ask("servers", running=False)
    [spared] = ask("servers", payloads=False)
    assert [b"{}", b""] == [one.active_workers[0].payload for one in (server, spared)]


def test_a_closed_inspector_says_so(redis_url: str) -> None:
    """Closing twice is harmless, asking afterwards is an error of its own class."""
    closed = sync.Inspector(redis_url)
    closed.close()
    closed.close()
    with pytest.raises(ClientClosedError):
        closed.queues()


def test_an_inspector_that_is_never_closed_warns(redis_url: str) -> None:
    """A leak of connections shows in tests."""
    leaking = sync.Inspector(redis_url)
    leaking.queues()
    with pytest.warns(ResourceWarning, match="unclosed <pyasynq"):
        del leaking


def test_the_password_is_not_shown() -> None:
    """The `repr` of an inspector leaves out the password of its URL."""
    assert "secret" not in repr(sync.Inspector("redis://:secret@localhost"))
