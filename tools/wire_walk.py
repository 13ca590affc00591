"""A walk of tasks through all states, with the content of Redis after each step: part of the vectors."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import redis

from pyasynq._broker.aggregation_sets import AggregationSet, finish_set
from pyasynq._broker.cancellation import request_cancelation
from pyasynq._broker.delayed import forward
from pyasynq._broker.dequeue import DequeueRules, DequeueTerms, dequeue
from pyasynq._broker.enqueueing.compose import compose
from pyasynq._broker.enqueueing.enqueue import enqueue_run, split_runs
from pyasynq._broker.groups import GroupLimits, check_groups
from pyasynq._broker.inspecting.queues import pause_queue
from pyasynq._broker.leases import OWN_SLACK_SECONDS, RecoverTask, recover, renew
from pyasynq._broker.queue_registry import register_queues
from pyasynq._broker.results import write_progress, write_result
from pyasynq._broker.schedules import begin_entries, fire, record_enqueue_event, write_scheduler_entries
from pyasynq._broker.semaphore import acquire_token
from pyasynq._broker.servers import write_server_state
from pyasynq._broker.settle import (
    ArchiveTask,
    Claim,
    CompleteTask,
    RetryTask,
    settle_archive,
    settle_complete,
    settle_retry,
)
from pyasynq._broker.stored_limits import set_limits
from pyasynq._broker.task_events import encode_event, publish_events
from pyasynq._clock import Instant
from pyasynq._redis.driver import BlockingDriver
from pyasynq._redis.url import parse_redis_url
from pyasynq._wire.constants import ARCHIVE_LIMIT, LEASE_SECONDS
from pyasynq._wire.history import HistoryEntry, encode_attempt, encode_progress
from pyasynq._wire.keys import queue_keys
from pyasynq._wire.messages import (
    SchedulerEnqueueEvent,
    SchedulerEntry,
    ServerInfo,
    WorkerInfo,
    copy_task_message,
    decode_task_message,
    encode_task_message,
)
from pyasynq.embedded import open_embedded
from pyasynq.task import Task, TaskProgress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyasynq._redis.plan import Plan

    Perform = Callable[[Plan[Any]], Any]
    RedisClient = Any

NOW: Final = Instant(4_000_000_000, 250_000)
"""Time of the walk: in the year 2096, so that none of its keys has expired."""

SERVER: Final = "52f7f9b1-3475-407c-84bd-6fc5a5f8f784"
SET: Final = "0ad1ce62-accc-44bb-b776-5abe7d5df057"
QUEUE: Final = "default"
TICK: Final = "entry:4000000160"

Database = dict[str, dict[str, Any]]


class Step(NamedTuple):
    """One step of the walk: a description, the time, and the plan to run."""

    words: str
    now: Instant
    plan: Plan[Any]


class Walk:
    """The steps of the walk, in order; `message_of` returns the bytes of a task's message at its step."""

    def __init__(self, message_of: Callable[[str], bytes]) -> None:
        self._message_of = message_of
        self._now = NOW

    def steps(self) -> Iterator[Step]:
        """Yield all steps."""
        for part in (
            self._failure,
            self._crash_and_success,
            self._group,
            self._cancel,
            self._limits,
            self._records,
        ):
            for words, plan in part():
                yield Step(words, self._now, plan)

    def _failure(self) -> Iterator[tuple[str, Plan[Any]]]:
        task = Task("email:deliver", b'{"user_id":42}', task_id="one", unique=600, retention=3600)
        yield "a client enqueues `one`: unique for 600 s, retention 3,600 s", self._put(task)
        yield "a worker takes it", self._take(1)
        self._now = self._now.plus(5)
        held = _claim("one", 1)
        yield "its server renews the lease", renew(QUEUE, [held], now=self._now)
        progress = encode_progress(TaskProgress(done=3, total=10, note="", at=self._now.to_datetime()))
        writing = write_progress(QUEUE, "one", held.token, progress, lease_score=held.lease_score)
        yield "the handler reports progress", writing
        failed = RetryTask(
            held,
            self._rewritten("one", retried=1, error_msg="no route", last_failed_at=self._now.seconds),
            self._now.plus(60).ceiling,
            is_failure=True,
            trace=b"Traceback ...",
            history_entry=self._attempt("retried", "no route"),
        )
        yield "the handler fails: retry in 60 s", settle_retry(QUEUE, [failed], now=self._now)
        self._now = self._now.plus(61)
        yield "a forwarder finds it due", forward(QUEUE, now=self._now)

    def _crash_and_success(self) -> Iterator[tuple[str, Plan[Any]]]:
        yield "a worker takes it again", self._take(2)
        end = self._now.ceiling + LEASE_SECONDS
        self._now = Instant(end + OWN_SLACK_SECONDS)
        crashed = RecoverTask("one", f"{SERVER}/2", end, self._attempt("crashed", "its worker died"))
        yield "that worker is killed; a recoverer puts it back", recover(QUEUE, [crashed], now=self._now)
        yield "a third worker takes it", self._take(3)
        held = _claim("one", 3)
        result = write_result(QUEUE, "one", held.token, b'{"sent":true}', lease_score=held.lease_score)
        yield "the handler writes a result", result
        lock = decode_task_message(self._message_of("one")).unique_key
        message = self._rewritten("one", completed_at=self._now.seconds)
        done = CompleteTask(held, lock, message, self._now.seconds + 3600, None)
        yield "it succeeds and is kept", settle_complete(QUEUE, [done], now=self._now)

    def _group(self) -> Iterator[tuple[str, Plan[Any]]]:
        member = Task("note", b"a", task_id="member", group="user:1", process_in=10)
        yield "a client schedules `member` for its group, in 10 s", self._put(member)
        self._now = self._now.plus(10)
        yield "a forwarder finds it due: it joins the group", forward(QUEUE, now=self._now)
        self._now = self._now.plus(60)
        groups = [("user:1", GroupLimits(60))]
        check = check_groups(QUEUE, groups, most_sets=1, now=self._now, new_id=lambda: SET)
        yield "an aggregator finds the group due", check
        digest = compose(Task("digest", b"a", task_id="digest"), {}, now=self._now)
        one = AggregationSet(QUEUE, "user:1", SET)
        finish = finish_set(one, digest, locks=(), now=self._now)
        yield "its function makes `digest` of it", finish

    def _cancel(self) -> Iterator[tuple[str, Plan[Any]]]:
        yield "a worker takes `digest`", self._take(4)
        request = request_cancelation("digest", QUEUE, "archive", now=self._now)
        yield "an inspector asks to cancel it, and to archive it", request
        message = self._rewritten("digest", error_msg="context canceled", last_failed_at=self._now.seconds)
        ended = ArchiveTask(_claim("digest", 4), message, self._now.seconds, b"")
        archive = settle_archive(QUEUE, [ended], max_size=ARCHIVE_LIMIT, cutoff=0, now=self._now)
        yield "its worker archives it", archive

    def _limits(self) -> Iterator[tuple[str, Plan[Any]]]:
        limits = set_limits(QUEUE, 1, 2, 1.0, 1)
        yield "an inspector stores limits: one at a time, two per second", limits
        begin = begin_entries(QUEUE, ["entry"], now=self._now)
        yield "a scheduler sees an entry for the first time", begin
        tick = compose(Task("tick", b"", task_id=TICK, unique=60), {}, now=self._now)
        fired = fire(tick, entry_id="entry", tick=4_000_000_160, now=self._now)
        yield "it fires a tick", fired
        terms = DequeueTerms(DequeueRules.LIMITED)
        taking = dequeue(QUEUE, limit=5, token=f"{SERVER}/5", terms=terms, now=self._now)
        yield "a worker that knows of limits takes what they allow", taking
        event = encode_event("started", QUEUE, self._now, task_id=TICK, type="tick", server=SERVER)
        yield "its server publishes that", publish_events(QUEUE, [event], max_length=1_000)
        deadline = self._now.seconds + 1800
        token = acquire_token("renderer", 4, TICK, deadline=deadline, now=self._now)
        yield "a handler takes a token of a semaphore", token
        yield "an inspector pauses the queue", pause_queue(QUEUE, now=self._now)

    def _records(self) -> Iterator[tuple[str, Plan[Any]]]:
        moment = self._now.to_datetime()
        server = ServerInfo(
            host="h",
            pid=7,
            server_id=SERVER,
            concurrency=4,
            queues={QUEUE: 1},
            strict_priority=False,
            status="active",
            start_time=moment,
            active_worker_count=1,
            engine="pyasynq",
        )
        worker = WorkerInfo(
            host="h",
            pid=7,
            server_id=SERVER,
            task_id=TICK,
            task_type="tick",
            task_payload=b"",
            queue=QUEUE,
            start_time=moment,
            deadline=moment,
        )
        yield "a server's heartbeat", write_server_state(server, [worker], now=self._now)
        entry = SchedulerEntry(
            id="entry",
            spec="@every 30s",
            task_type="tick",
            task_payload=b"",
            enqueue_options=(),
            next_enqueue_time=moment,
            prev_enqueue_time=None,
        )
        yield "a scheduler's heartbeat", write_scheduler_entries("h:7:s", [entry], now=self._now)
        happened = SchedulerEnqueueEvent(task_id=TICK, enqueue_time=moment)
        yield "it notes the enqueue", record_enqueue_event("entry", happened)

    def _put(self, task: Task) -> Plan[Any]:
        [run] = split_runs([compose(task, {}, now=self._now)])
        others = yield from enqueue_run(run, now=self._now)
        yield from register_queues([run.queue])
        return others

    def _take(self, call: int) -> Plan[Any]:
        return dequeue(QUEUE, limit=1, token=f"{SERVER}/{call}", now=self._now)

    def _attempt(self, outcome: str, error: str) -> HistoryEntry:
        now = self._now.timestamp
        return encode_attempt(outcome, error, server=SERVER, started_at=now - 1, ended_at=now)

    def _rewritten(self, task_id: str, **fields: Any) -> bytes:
        message = copy_task_message(decode_task_message(self._message_of(task_id)))
        for name, value in fields.items():
            setattr(message, name, value)
        return encode_task_message(message)


def _claim(task_id: str, call: int) -> Claim:
    return Claim(task_id, f"{SERVER}/{call}", NOW.seconds + 3600)


def walk(perform: Perform, client: RedisClient) -> list[dict[str, Any]]:
    """Run the steps on an empty database; return the changed and the deleted keys of each step."""
    before: Database = {}
    vectors: list[dict[str, Any]] = []
    for step in Walk(lambda task_id: client.hget(queue_keys(QUEUE).task(task_id), "msg")).steps():
        perform(step.plan)
        after = database(client)
        vectors.append(
            {
                "step": step.words,
                "now": step.now.timestamp,
                "changed": {key: after[key] for key in sorted(after) if _differ(after[key], before.get(key))},
                "gone": sorted(before.keys() - after.keys()),
            }
        )
        before = after
    return vectors


def _differ(after: dict[str, Any], before: dict[str, Any] | None) -> bool:
    """Return whether a key is new, or more than its TTL has changed."""
    return before is None or {**after, "seconds left": 0} != {**before, "seconds left": 0}


def database(client: RedisClient) -> Database:
    """Return all keys with values and TTLs: in seconds, for daily counters as a Unix time."""
    found: Database = {}
    for name in client.keys("*"):
        entry: dict[str, Any] = {"type": client.type(name).decode(), "value": _value(client, name)}
        if client.pttl(name) > 0:
            is_counter = b"processed:" in name or b"failed:" in name
            if is_counter:
                entry["ends at"] = client.pexpiretime(name) // 1000
            else:
                entry["seconds left"] = -(-client.pttl(name) // 1000)
        found[name.decode()] = entry
    return found


def _value(client: RedisClient, name: bytes) -> Any:
    match client.type(name):
        case b"string":
            return _text(client.get(name))
        case b"list":
            return [_text(item) for item in client.lrange(name, 0, -1)]
        case b"set":
            return sorted(_text(item) for item in client.smembers(name))
        case b"zset":
            return {_text(item): int(score) for item, score in client.zrange(name, 0, -1, withscores=True)}
        case b"hash":
            return {field.decode(): _text(data) for field, data in sorted(client.hgetall(name).items())}
        case _:
            # A stream; the ids of its entries are the time of day.
            return [
                {field.decode(): _text(data) for field, data in item.items()}
                for _, item in client.xrange(name)
            ]


def _text(data: bytes) -> str:
    """Return text unchanged, and a protobuf message, whose first field is a text, as `hex:` and its bytes."""
    if data.startswith(b"\n"):
        return f"hex:{data.hex()}"
    return data.decode()


def walk_on_own_server() -> list[dict[str, Any]]:
    """Do the walk on a server of its own."""
    with tempfile.TemporaryDirectory() as folder:
        server = open_embedded(f"embedded://{folder}")
        driver = BlockingDriver(parse_redis_url(server.url))
        client = redis.Redis.from_url(server.url)
        try:
            return walk(driver.run, client)
        finally:
            client.close()
            driver.close()
            server.stop()
