"""Fill a Redis with many queues and tasks, hostile ones among them, for tests and measurements of operators.

    python -m tests.operators_world redis://localhost:6379/0 --queues 1000 --tasks 1000000 --deep 0.5

The database should be empty; nothing is removed first. A million tasks take about a minute and 600 MB.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import redis

from pyasynq._broker.servers import write_server_state
from pyasynq._redis.driver import BlockingDriver
from pyasynq._redis.url import parse_redis_url
from pyasynq._wire.keys import ALL_QUEUES, QueueKeys, queue_keys
from pyasynq._wire.messages import ServerInfo, WorkerInfo, encode_task_message, new_task_message
from pyasynq.task import TaskState
from tests.foreign_texts import HOSTILE_TEXTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

STATES: Final = (
    (TaskState.ARCHIVED, 0.45),
    (TaskState.COMPLETED, 0.25),
    (TaskState.PENDING, 0.15),
    (TaskState.SCHEDULED, 0.06),
    (TaskState.RETRY, 0.06),
    (TaskState.AGGREGATING, 0.03),
)
"""The states of the tasks, and their shares; active tasks are those of the servers."""
TYPES: Final = ("email:deliver", "email:bulk", "image:resize", "report:build", "invoice:send", "sync:crm")
ERRORS: Final = (
    "timeout after {n} s",
    "connection to 10.0.0.{n}:5432 refused",
    "KeyError: 'user-{n}'",
    "invoice {n} is not open",
)
SPAN: Final = 30 * 86_400
"""Seconds over which archived and completed tasks are spread; one of a thousand is of the last hour."""
HOSTILE_NAMES: Final = ("mail/eu", "a:b:c", "100%", "<b>&amp;", "two words", "{braces}", "..", *HOSTILE_TEXTS)
"""Names of queues and tasks that every interface must handle."""
_LARGE: Final = 5_000_000
_SERVERS: Final = 200
_ACTIVE_EACH: Final = 20
_RECORD_SECONDS: Final = 86_400
_AT_ONCE: Final = 1_000
_FIRST_NUMBER: Final = 10_000_000


class World(NamedTuple):
    """Summary of the data that were written.

    Attributes:
        queues: their names.
        tasks: how many tasks there are, damaged ones included.
        seconds: how long it took.
    """

    queues: tuple[str, ...]
    tasks: int
    seconds: float


class _Line:
    """A connection without replies (CLIENT REPLY OFF), which sends commands as fast as they are packed."""

    def __init__(self, client: redis.Redis) -> None:
        self._pool = client.connection_pool
        connection: Any = self._pool.get_connection()
        self._connection = connection
        self._connection.send_command("CLIENT", "REPLY", "OFF")
        self._packed: list[bytes] = []
        self._size = 0

    def send(self, *parts: bytes) -> None:
        """Send a command, with others."""
        packed = b"".join(
            [b"*%d\r\n" % len(parts), *(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)]
        )
        self._packed.append(packed)
        self._size += len(packed)
        if self._size > 1_000_000:
            self.flush()

    def flush(self) -> None:
        """Send the buffered commands."""
        self._connection.send_packed_command(self._packed)
        self._packed, self._size = [], 0

    def close(self) -> None:
        """Wait until Redis has done everything."""
        self.flush()
        self._connection.send_command("CLIENT", "REPLY", "ON")
        assert self._connection.read_response() == b"OK"
        self._pool.release(self._connection)


def queue_names(count: int) -> tuple[str, ...]:
    """Return names of queues; the first ones are hostile."""
    hostile = list(HOSTILE_NAMES)[: count // 2]
    return (*hostile, *(f"queue-{number:05}" for number in range(count - len(hostile))))


def fill(
    client: redis.Redis, *, queues: int, tasks: int, deep: float = 0.0, now: int | None = None, seed: int = 1
) -> World:
    """Fill queues with tasks.

    Args:
        client: of a single server.
        queues: how many queues there are.
        tasks: how many tasks there are in all of them.
        deep: the share of the tasks that are archived in the last queue.
        now: the present, in Unix seconds; that of this host unless given.
        seed: of what is drawn.
    """
    began = time.monotonic()
    now = int(time.time()) if now is None else now
    names = queue_names(queues)
    drawn = random.Random(seed)
    line = _Line(client)
    for name in names:
        line.send(b"SADD", ALL_QUEUES.encode(), name.encode())
    made = 0
    in_depth = int(tasks * deep)
    for name, state, count in _shares(names, tasks - in_depth, in_depth):
        _put(line, queue_keys(name), state, range(made, made + count), now, drawn)
        made += count
    made += _put_damaged(line, queue_keys(names[-1]), now)
    line.close()
    made += _put_servers(client, names, now)
    return World(names, made, time.monotonic() - began)


def fill_one(
    client: redis.Redis, queue: str, state: TaskState, count: int, *, now: int | None = None
) -> None:
    """Put many tasks into one state of another queue; their numbers begin at 10 million."""
    line = _Line(client)
    line.send(b"SADD", ALL_QUEUES.encode(), queue.encode())
    numbers = range(_FIRST_NUMBER, _FIRST_NUMBER + count)
    for first in range(0, count, _AT_ONCE * 100):
        part = numbers[first : first + _AT_ONCE * 100]
        _put(line, queue_keys(queue), state, part, now or int(time.time()), random.Random(first))
    line.close()


def fill_groups(client: redis.Redis, queue: str, count: int) -> None:
    """Put this many groups of one task each into another queue."""
    line = _Line(client)
    keys = queue_keys(queue)
    now = int(time.time())
    line.send(b"SADD", ALL_QUEUES.encode(), queue.encode())
    for number in range(count):
        task_id, group = b"grouped-%d" % number, f"group-{number:06}"
        message = _message(queue, task_id, TaskState.AGGREGATING, now, group, number)
        fields = (b"msg", message, b"state", b"aggregating", b"group", group.encode())
        line.send(b"HSET", keys.task(task_id.decode()).encode(), *fields)
        line.send(b"ZADD", keys.group(group).encode(), b"%d" % (now - number % 1_000), task_id)
        line.send(b"SADD", keys.groups.encode(), group.encode())
    line.close()


def _shares(names: Sequence[str], wide: int, deep: int) -> Iterator[tuple[str, TaskState, int]]:
    """Yield how many tasks of each state each queue gets."""
    if deep:
        yield names[-1], TaskState.ARCHIVED, deep
    each, rest = divmod(wide, len(names))
    for number, name in enumerate(names):
        left = each + (number < rest)
        for state, share in STATES[1:]:
            count = min(left, round((each + 1) * share))
            left -= count
            yield name, state, count
        yield name, STATES[0][0], left


def _put(
    line: _Line, keys: QueueKeys, state: TaskState, numbers: Sequence[int], now: int, drawn: random.Random
) -> None:
    """Put tasks into one state of a queue."""
    word = state.value.encode()
    prefix = keys.task_prefix.encode()
    places: dict[bytes, list[bytes]] = {}
    for number in numbers:
        task_id = b"%08x-%04x" % (number * 2_654_435_761 % 2**32, number % 65_536)
        age = int(drawn.random() ** 3 * SPAN)
        group = f"group-{number % 50}" if state is TaskState.AGGREGATING else ""
        message = _message(keys.queue, task_id, state, now - age, group, number)
        fields = [b"msg", message, b"state", word]
        if state is TaskState.PENDING:
            fields += [b"pending_since", b"%d000000000" % (now - age // 1_000)]
        if group:
            fields += [b"group", group.encode()]
        line.send(b"HSET", prefix + task_id, *fields)
        key = (keys.group(group) if group else str(getattr(keys, state.value))).encode()
        places.setdefault(key, []).append(task_id)
        if state is not TaskState.PENDING:
            places[key].insert(-1, b"%d" % _score(state, now, age))
    for key, members in places.items():
        command = b"LPUSH" if state is TaskState.PENDING else b"ZADD"
        for first in range(0, len(members), 2 * _AT_ONCE):
            line.send(command, key, *members[first : first + 2 * _AT_ONCE])
        if state is TaskState.AGGREGATING:
            line.send(b"SADD", keys.groups.encode(), key.removeprefix(keys.group_prefix.encode()))


def _score(state: TaskState, now: int, age: int) -> int:
    if state is TaskState.COMPLETED:
        return now - age + 2 * SPAN
    return now + age // 100 if state in {TaskState.SCHEDULED, TaskState.RETRY} else now - age


def _message(queue: str, task_id: bytes, state: TaskState, then: int, group: str, number: int) -> bytes:
    has_failed = state in {TaskState.ARCHIVED, TaskState.RETRY}
    payload = b'{"user_id":%d,"template":"welcome","customer":{"id":%d,"tier":"%b"}}' % (
        number,
        number % 5_000,
        b"gold" if number % 10 == 0 else b"basic",
    )
    return encode_task_message(
        new_task_message(
            id=task_id.decode(),
            queue=queue,
            type=TYPES[number % len(TYPES)],
            payload=payload,
            retry=25,
            retried=number % 25 if has_failed else 0,
            timeout=1_800,
            error_msg=ERRORS[number % len(ERRORS)].format(n=number % 251) if has_failed else "",
            last_failed_at=then if has_failed else 0,
            completed_at=then if state is TaskState.COMPLETED else 0,
            retention=2 * SPAN if state is TaskState.COMPLETED else 0,
            group_key=group,
        )
    )


def _put_damaged(line: _Line, keys: QueueKeys, now: int) -> int:
    """Put tasks that are large, broken or missing into the archive of a queue; return how many."""
    score = b"%d" % (now - 60)
    prefix = keys.task_prefix.encode()
    archived = keys.archived.encode()
    bodies = {
        "missing": None,
        "broken": b"\xff\xff\xff",
        "empty": b"",
        "large": _hostile_message(keys.queue, "large", b'{"a":"' + b"x" * _LARGE + b'"}'),
        "deep": _hostile_message(keys.queue, "deep", b"[" * 100_000),
        "script": _hostile_message(keys.queue, "script", b'"<script>alert(1)</script>"'),
    }
    bodies |= {name: _hostile_message(keys.queue, name, name.encode()) for name in HOSTILE_NAMES}
    for name, message in bodies.items():
        line.send(b"ZADD", archived, score, name.encode())
        if message is not None:
            line.send(b"HSET", prefix + name.encode(), b"msg", message, b"state", b"archived")
    line.send(b"ZADD", archived, score, b"frozen")
    line.send(
        b"HSET", prefix + b"frozen", b"msg", _hostile_message(keys.queue, "frozen", b""), b"state", b"ice"
    )
    return len(bodies) + 1


def _hostile_message(queue: str, name: str, payload: bytes) -> bytes:
    return encode_task_message(
        new_task_message(
            id=name, queue=queue, type=f"t {name}", payload=payload, error_msg=f"{name}: \x1b]52;c;eA==\x07"
        )
    )


def _put_servers(client: redis.Redis, names: Sequence[str], now: int) -> int:
    """Put the records of servers, and the active tasks that they run; return how many tasks."""
    turn = itertools.cycle(names[:100])
    address = client.connection_pool.connection_kwargs
    url = f"unix://{address['path']}" if "path" in address else f"redis://{address['host']}:{address['port']}"
    driver = BlockingDriver(parse_redis_url(f"{url}?db={address.get('db', 0)}"))
    batch = client.pipeline(transaction=False)
    for number in range(_SERVERS):
        queue = next(turn)
        keys = queue_keys(queue)
        workers = []
        for slot in range(_ACTIVE_EACH):
            task_id = f"active-{number}-{slot}"
            started = now - number - slot
            message = _message(queue, task_id.encode(), TaskState.ACTIVE, started, "", slot)
            values: dict[Any, Any] = {
                "msg": message,
                "state": "active",
                "x:attempt": f"server-{number}/{slot}",
            }
            batch.hset(keys.task(task_id), mapping=values)
            batch.lpush(keys.active, task_id)
            batch.zadd(keys.lease, {task_id: now + _RECORD_SECONDS})
            workers.append(_worker(queue, number, task_id, TYPES[slot % len(TYPES)], started))
        driver.run(write_server_state(_server(queue, number, now), workers, ttl=_RECORD_SECONDS))
    batch.execute()
    driver.close()
    return _SERVERS * _ACTIVE_EACH


def _worker(queue: str, number: int, task_id: str, kind: str, started: int) -> WorkerInfo:
    return WorkerInfo(
        host=f"host-{number}",
        pid=number + 1,
        server_id=f"server-{number}",
        task_id=task_id,
        task_type=kind,
        task_payload=b"{}",
        queue=queue,
        start_time=_moment(started),
        deadline=_moment(started + 1_800),
    )


def _server(queue: str, number: int, now: int) -> ServerInfo:
    return ServerInfo(
        host=f"host-{number}",
        pid=number + 1,
        server_id=f"server-{number}",
        concurrency=_ACTIVE_EACH,
        queues={queue: 1},
        strict_priority=False,
        status="active",
        start_time=_moment(now - 86_400),
        active_worker_count=_ACTIVE_EACH,
        engine="pyasynq" if number % 2 else "",
    )


def _moment(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def main(arguments: Sequence[str]) -> int:
    """Fill the Redis that is named; return the exit code."""
    parser = argparse.ArgumentParser(description="Fill a Redis with queues and tasks.")
    parser.add_argument("url", help="redis:// or unix:// of an empty database on a single server")
    parser.add_argument("--queues", type=int, default=1_000)
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--deep", type=float, default=0.5, help="share of them archived in the last queue")
    asked = parser.parse_args(arguments)
    with redis.Redis.from_url(asked.url) as client:
        if client.dbsize():
            parser.error("the database is not empty")
        world = fill(client, queues=asked.queues, tasks=asked.tasks, deep=asked.deep)
    sys.stdout.write(f"{len(world.queues):,} queues, {world.tasks:,} tasks, {world.seconds:.1f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
