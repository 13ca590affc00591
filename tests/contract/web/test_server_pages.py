"""The list of servers, and the page of one server."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from pyasynq._broker.servers import write_server_state
from pyasynq._redis.driver import BlockingDriver
from pyasynq._redis.url import parse_redis_url
from pyasynq._wire.engine_text import encode_engine
from pyasynq._wire.messages import ServerInfo, WorkerInfo
from pyasynq.operations import User
from pyasynq.operations import sync as blocking
from pyasynq.task import Task
from tests.run_async import run_async
from tests.visiting import visiting

pytestmark = pytest.mark.single_server("one database for all queues")


def _announce_servers(url: str, count: int, *, queues: int = 1, engine: str = "") -> None:
    """Let servers run one task each; the one that started last has run its task for the shortest time."""
    driver = BlockingDriver(parse_redis_url(url))
    now = datetime.now(UTC)
    for number in range(count):
        server_id = f"server-{number}"
        info = ServerInfo(
            host="host",
            pid=number,
            server_id=server_id,
            concurrency=2,
            queues={f"queue-{queue:03}": 1 + queue % 2 for queue in range(queues)},
            strict_priority=False,
            status="active",
            start_time=now,
            active_worker_count=1,
            engine=engine,
        )
        worker = WorkerInfo(
            host="host",
            pid=number,
            server_id=server_id,
            task_id=f"task-{number:03}",
            task_type="email",
            task_payload=b"{}",
            queue="queue-001",
            start_time=now - timedelta(minutes=count - number),
            deadline=None,
        )
        driver.run(write_server_state(info, [worker], ttl=86_400))
    driver.close()


def _listed(text: str, pattern: str) -> list[str]:
    return list(dict.fromkeys(re.findall(pattern, text)))


@run_async
async def test_servers_and_their_tasks_have_pages_of_their_own(redis_url: str) -> None:
    """Turning the pages of one table leaves the other one where it is."""
    _announce_servers(redis_url, 101)
    async with visiting(redis_url) as visitor:
        text = (await visitor.get("servers?servers=2&page=3")).text
    assert "101 alive; 101 of 202 slots busy" in text
    assert "<p>51 to 100 of 101</p>" in text
    assert [f"host:{number}" for number in range(50, 100)] == _listed(
        text, r'rowheader" class="nw">.*?>(.*?)<'
    )
    assert ["queues/queue-001/tasks/task-100"] == _listed(text, r'"./(queues/queue-001/tasks/task-\d+)"')
    assert ["servers?page=3", "servers?servers=3&amp;page=3", "servers?servers=2"] == _listed(
        text, r'href="(servers\?[^"]*)" rel'
    )


@run_async
async def test_a_server_of_many_queues_lists_those_of_highest_priority_first(redis_url: str) -> None:
    """A page of them, with links to the others; the list of servers names five."""
    _announce_servers(redis_url, 1, queues=101)
    high, low = ([f"queue-{number:03}" for number in range(first, 101, 2)] for first in (1, 0))
    async with visiting(redis_url) as visitor:
        listed = (await visitor.get("servers")).text
        first, last = [(await visitor.get(f"servers/server-0?queues={page}")).text for page in (1, 3)]
    assert f"{', '.join(high[:5])} and 96 more" in listed
    pattern = r'rowheader" class="cut w4"><a href="../queues/(queue-\d+)"'
    assert high == _listed(first, pattern)
    assert "<p>1 to 50 of 101</p>" in first
    assert low[-1:] == _listed(last, pattern)


@run_async
async def test_a_server_whose_event_loop_is_blocked_says_so(redis_url: str) -> None:
    """In the list, and for how long on its own page."""
    _announce_servers(redis_url, 1, engine=encode_engine("pyasynq", {}, blocked=12.4))
    async with visiting(redis_url) as visitor:
        listed, own = [(await visitor.get(path)).text for path in ("servers", "servers/server-0")]
    assert "Loop blocked" in listed
    assert "<dt>Event loop</dt><dd>blocked for 12 s</dd>" in own


@run_async
async def test_a_queue_and_a_task_type_of_many_servers_link_the_others(redis_url: str) -> None:
    """The queue has pages of them; the type names twenty, and leads to the queue."""
    _announce_servers(redis_url, 101)
    with blocking.Operator(redis_url, User.with_role("mira", "admin")) as operator:
        operator.set_type_configuration("queue-000", {})
        operator.enqueue("queue-000", Task("email", b"{}"))
    async with visiting(redis_url) as visitor:
        tab = (await visitor.get("queues/queue-000?tab=consumers&page=2")).text
        of_type = (await visitor.get("task-types/queue-000")).text
    assert [f"host:{number}" for number in range(50, 100)] == _listed(tab, r">(host:\d+)<")
    assert "<p>51 to 100 of 101</p>" in tab
    assert [f"host:{number}" for number in range(20)] == _listed(of_type, r">(host:\d+)<")
    assert '<a href="../queues/queue-000?tab=consumers">All 101 servers</a>' in of_type
