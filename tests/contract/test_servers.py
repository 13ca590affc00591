from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyasynq._broker.cancellation import publish_cancelation
from pyasynq._broker.servers import (
    LiveServer,
    clear_server_state,
    count_servers,
    list_servers,
    write_server_state,
)
from pyasynq._wire.messages import ServerInfo, WorkerInfo
from tests.factories import NOW
from tests.waiting import set_to

if TYPE_CHECKING:
    from tests.fix_broker import Perform
    from tests.invariants import RedisClient

START = datetime(2033, 5, 18, tzinfo=UTC)
SERVER, WORKERS = "asynq:servers:{host:7:abc}", "asynq:workers:{host:7:abc}"


def server(server_id: str = "abc", **changes: Any) -> ServerInfo:
    """Return what a server says of itself."""
    values: dict[str, Any] = {
        "host": "host",
        "pid": 7,
        "server_id": server_id,
        "concurrency": 10,
        "queues": {"default": 1},
        "strict_priority": False,
        "status": "active",
        "start_time": START,
        "active_worker_count": 1,
        "engine": "pyasynq",
    }
    return ServerInfo(**(values | changes))


def worker(task_id: str) -> WorkerInfo:
    """Return what it says of a task."""
    return WorkerInfo(
        host="host",
        pid=7,
        server_id="abc",
        task_id=task_id,
        task_type="t",
        task_payload=b"p",
        queue="default",
        start_time=START,
        deadline=START,
    )


def test_a_server_shows_itself_and_its_tasks(perform: Perform, redis_client: RedisClient) -> None:
    """Fails if the script no longer calls SET or HSET."""
    perform(write_server_state(server(), [worker("a"), worker("b")], now=NOW))
    assert server().encode() == redis_client.get(SERVER)
    assert {b"a": worker("a").encode(), b"b": worker("b").encode()} == redis_client.hgetall(WORKERS)


def test_records_vanish_ten_seconds_later(perform: Perform, redis_client: RedisClient) -> None:
    """Fails if the script no longer calls ZADD or EXPIRE; the second is rounded up."""
    perform(write_server_state(server(), [worker("a")], now=NOW))
    assert [set_to(10)] * 2 == [redis_client.ttl(SERVER), redis_client.ttl(WORKERS)]
    scores = [redis_client.zrange(key, 0, -1, withscores=True) for key in ("asynq:servers", "asynq:workers")]
    expected = [[(SERVER.encode(), NOW.ceiling + 10)], [(WORKERS.encode(), NOW.ceiling + 10)]]
    assert expected == scores


def test_a_later_record_replaces_an_earlier_one(perform: Perform, redis_client: RedisClient) -> None:
    """Fails if the script no longer calls DEL: tasks that ended are not shown any more."""
    perform(write_server_state(server(), [worker("a"), worker("b")], now=NOW))
    perform(write_server_state(server(status="stopped"), [worker("b")], ttl=20, now=NOW))
    assert [b"b"] == redis_client.hkeys(WORKERS)
    assert server(status="stopped").encode() == redis_client.get(SERVER)
    assert NOW.ceiling + 20 == redis_client.zscore("asynq:servers", SERVER)
    perform(write_server_state(server(), [], now=NOW))
    assert 0 == redis_client.exists(WORKERS), "without tasks there is no hash"


def test_a_server_with_very_many_tasks_shows_all_of_them(perform: Perform, redis_client: RedisClient) -> None:
    """They take several calls, of which the first removes what was there. (D47)"""
    perform(write_server_state(server(), [worker("old")], now=NOW))
    perform(write_server_state(server(), [worker(str(number)) for number in range(2_000)], now=NOW))
    assert {str(number).encode() for number in range(2_000)} == set(redis_client.hkeys(WORKERS))


def test_servers_are_counted_without_those_whose_heartbeat_has_lapsed(
    perform: Perform, redis_client: RedisClient
) -> None:
    """These may still exist."""
    redis_client.zadd("asynq:servers", {"gone": NOW.seconds - 1, "just there": NOW.seconds})
    assert 1 == perform(count_servers(NOW))
    perform(write_server_state(server(), [worker("a")], now=NOW))
    assert 2 == perform(count_servers(NOW))


def test_h15_w23_without_a_time_redis_tells_it(perform: Perform, redis_client: RedisClient) -> None:
    """Fails if the script no longer calls TIME."""
    perform(write_server_state(server(), []))
    seconds = redis_client.time()[0]
    assert seconds + 9 <= redis_client.zscore("asynq:servers", SERVER) <= seconds + 11
    assert [server()] == [record.info for record in perform(list_servers())]


def test_a_closing_server_removes_its_records(perform: Perform, redis_client: RedisClient) -> None:
    """The records of other servers stay."""
    perform(write_server_state(server("abc"), [worker("a")], now=NOW))
    perform(write_server_state(server("other"), [], now=NOW))
    perform(clear_server_state("host", 7, "abc"))
    assert [b"asynq:servers:{host:7:other}"] == redis_client.zrange("asynq:servers", 0, -1)
    assert [b"asynq:workers:{host:7:other}"] == redis_client.zrange("asynq:workers", 0, -1)
    assert 0 == redis_client.exists(SERVER, WORKERS)


def test_running_servers_are_listed_with_their_tasks(perform: Perform, redis_client: RedisClient) -> None:
    """A record of this second still counts, and looking changes nothing."""
    perform(write_server_state(server(), [worker("a")], now=NOW))
    redis_client.zadd("asynq:servers", {"asynq:servers:{gone}": NOW.seconds - 1, SERVER: NOW.seconds})
    assert [LiveServer(server(), [worker("a")])] == perform(list_servers(NOW))
    assert 2 == redis_client.zcard("asynq:servers")


def test_a_heartbeat_forgets_records_that_have_lapsed(perform: Perform, redis_client: RedisClient) -> None:
    """Ten at a time, those of servers that were killed; one of this second still counts."""
    lapsed = {f"asynq:servers:{{gone{number}}}": NOW.seconds - 1 for number in range(15)}
    redis_client.zadd("asynq:servers", lapsed | {"asynq:servers:{last}": NOW.seconds})
    perform(write_server_state(server(), [], now=NOW))
    assert 15 + 1 - 10 + 1 == redis_client.zcard("asynq:servers")
    perform(write_server_state(server(), [], now=NOW))
    assert [b"asynq:servers:{last}", SERVER.encode()] == redis_client.zrange("asynq:servers", 0, -1)


def test_records_that_cannot_be_read_are_left_out(perform: Perform, redis_client: RedisClient) -> None:
    """One bad record hides no other; a key may also have expired already."""
    perform(write_server_state(server(), [worker("a")], now=NOW))
    redis_client.hset(WORKERS, "bad", b"\xff\xff")
    redis_client.set("asynq:servers:{bad}", b"\xff\xff")
    redis_client.zadd(
        "asynq:servers", dict.fromkeys(("asynq:servers:{bad}", "asynq:servers:{x}"), NOW.ceiling)
    )
    assert [LiveServer(server(), [worker("a")])] == perform(list_servers(NOW))


def test_a_cancelation_reaches_all_who_listen(perform: Perform, redis_client: RedisClient) -> None:
    """The message is the bare id, as Go's servers expect."""
    assert 0 == perform(publish_cancelation("a"))
    with redis_client.pubsub() as listener:
        listener.subscribe("asynq:cancel")
        assert "subscribe" == listener.get_message(timeout=5)["type"]
        assert 1 == perform(publish_cancelation("a"))
        assert b"a" == listener.get_message(timeout=5)["data"]
