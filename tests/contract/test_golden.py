"""The Redis that each call leaves, compared with the one that Asynq 0.26 left after the same call."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._broker.aggregation_sets import AggregationSet, Finish, finish_set
from pyasynq._broker.dequeue import dequeue
from pyasynq._broker.enqueueing.compose import compose, new_task_info
from pyasynq._broker.enqueueing.enqueue import enqueue_run, split_runs
from pyasynq._broker.groups import GroupLimits, check_groups
from pyasynq._broker.inspecting.actions import ArchiveLimits, archive_tasks, run_tasks
from pyasynq._broker.inspecting.queues import pause_queue, unpause_queue
from pyasynq._broker.inspecting.schedulers import scheduler_entries, scheduler_events
from pyasynq._broker.leases import renew
from pyasynq._broker.results import write_result
from pyasynq._broker.schedules import (
    clear_scheduler_entries,
    clear_scheduler_history,
    fire,
    record_enqueue_event,
    write_scheduler_entries,
)
from pyasynq._broker.servers import clear_server_state, write_server_state
from pyasynq._broker.settle import (
    ArchiveTask,
    Claim,
    CompleteTask,
    RetryTask,
    settle_archive,
    settle_complete,
    settle_done,
    settle_retry,
)
from pyasynq._clock import Instant
from pyasynq._wire.messages import SchedulerEnqueueEvent, SchedulerEntry, ServerInfo, WorkerInfo
from pyasynq.task import Task
from tests.contract.golden import VECTORS, Entry, Snapshot, differences, golden_snapshot, live_snapshot
from tests.contract.intended_differences import INTENDED
from tests.contract.settling import DoneTask
from tests.factories import registered

if TYPE_CHECKING:
    from pyasynq.options import EnqueueOptions
    from tests.fix_broker import Perform
    from tests.invariants import RedisClient

PAYLOAD = b'{"user_id":42,"template_id":"some:template:id"}'
DEADLINE = datetime.fromisoformat("2031-01-01T00:00:00Z")
CLIENT_CALLS: dict[str, Task] = {
    "enqueue_plain": Task("email:deliver", PAYLOAD, task_id="id-plain"),
    "enqueue_nil_payload": Task("email:deliver", task_id="id-nil"),
    "enqueue_all_options": Task(
        "email:deliver",
        PAYLOAD,
        task_id="id-all",
        headers={"traceparent": "00-abc-def-01"},
        queue="critical",
        max_retry=3,
        timeout=90,
        deadline=DEADLINE,
        unique=3600,
        retention=7200,
    ),
    "enqueue_unique_nil_payload": Task("email:deliver", task_id="id-uniq-nil", unique=3600),
    "enqueue_unique_empty_payload": Task("email:deliver", b"", task_id="id-uniq-empty", unique=3600),
    "schedule": Task("email:deliver", PAYLOAD, task_id="id-sched", process_at=DEADLINE),
    "schedule_unique": Task("email:deliver", PAYLOAD, task_id="id-sched-u", process_in=3600, unique=600),
    "group": Task("email:deliver", PAYLOAD, task_id="id-grp", group="g1"),
    "group_unique": Task("email:deliver", PAYLOAD, task_id="id-grp-u", group="g1", unique=600),
}
WORKER_CALLS = ["active", "done", "outcomes", "after_shutdown"]
AGGREGATOR_CALLS = ["aggregation_set_staged", "aggregated"]
INSPECTOR_CALLS = [
    "three_pending_paused",
    "archive_pending_by_inspector",
    "run_archived_by_inspector",
]
SCHEDULER_CALLS = ["scheduler", "scheduler_shutdown"]

CENTURY = timedelta(days=36_500)
"""How far the days of counters are moved, so that they do not end while this test is in use."""

Hashes = dict[str, dict[str, bytes]]


def check(name: str, golden: Snapshot, client: RedisClient) -> None:
    """Fail unless exactly the intended differences are found."""
    found = differences(golden, live_snapshot(client))
    intended = {(entry.key, entry.field) for entry in INTENDED if entry.vector == name}
    assert {} == {place: values for place, values in found.items() if place not in intended}
    assert intended == found.keys(), "an entry of the list is not needed"


def call_time(name: str) -> Instant:
    """Return when the client's call was made, as far as the vector tells."""
    vector = VECTORS[name]
    for entry in golden_snapshot(name).values():
        if since := entry.parts.get("pending_since"):
            return Instant(int(since) // 10**9, int(since) // 1000 % 10**6)
    if name == "schedule_unique":
        due = datetime.fromisoformat(vector["task_info"]["NextProcessAt"])
        return Instant.from_datetime(due - timedelta(hours=1))
    return Instant.from_timestamp(vector["taken_at_unix_ms"] / 1000)


def enqueue(perform: Perform, task: Task, now: Instant) -> None:
    """Enqueue one task."""
    [run] = split_runs([compose(task, {}, now=now)])
    assert not perform(registered(enqueue_run(run, now=now), run.queue))


@pytest.mark.parametrize("name", CLIENT_CALLS)
def test_a_client_call_leaves_what_asynq_leaves(
    perform: Perform, redis_client: RedisClient, name: str
) -> None:
    """Keys, types, fields, scores, TTLs to half a second, message bytes, microseconds of `pending_since`."""
    enqueue(perform, CLIENT_CALLS[name], call_time(name))
    check(name, golden_snapshot(name), redis_client)


@pytest.mark.parametrize("name", CLIENT_CALLS)
def test_a_client_call_tells_what_asynq_tells(name: str) -> None:
    """The description of the task; a due time is that of Redis, in whole seconds."""
    now, theirs = call_time(name), VECTORS[name]["task_info"]
    ours = new_task_info(compose(CLIENT_CALLS[name], {}, now=now), now)
    deadline = None if theirs["Deadline"].startswith("0001") else datetime.fromisoformat(theirs["Deadline"])
    assert (theirs["ID"], theirs["Queue"], theirs["Type"]) == (ours.id, ours.queue, ours.type)
    assert (theirs["State"], theirs["MaxRetry"], deadline) == (ours.state, ours.max_retry, ours.deadline)
    assert theirs["RetentionNs"] == ours.retention / timedelta(microseconds=1) * 1000
    timeout = ours.timeout or timedelta()
    assert theirs["TimeoutNs"] == timeout / timedelta(microseconds=1) * 1000
    assert theirs["Group"] == ours.group
    due = datetime.fromisoformat(theirs["NextProcessAt"])
    if due.year == 1:
        assert ours.next_process_at is None
        return
    assert ours.next_process_at is not None
    assert (
        timedelta()
        <= ours.next_process_at - due.replace(microsecond=due.microsecond // 1000 * 1000)
        < timedelta(seconds=1, milliseconds=1)
    )


def moved_counters(golden: Snapshot) -> Snapshot:
    """Return a snapshot with its days a century later."""
    moved = {}
    for key, entry in golden.items():
        head, _, day = key.rpartition(":")
        if entry.ttl and head.endswith(("processed", "failed")):
            later = datetime.fromisoformat(day) + CENTURY
            moved[f"{head}:{later:%Y-%m-%d}"] = entry._replace(ttl=entry.ttl + CENTURY.total_seconds())
        else:
            moved[key] = entry
    return moved


class Worker:
    """Does what the server of the vectors did, at the seconds that its scores tell."""

    started = Instant(1795168581, 757000)
    beat = Instant(1795168586)
    done = Instant(1795168587)
    failed = Instant(1795168588)
    last_beat = Instant(1795168591)

    def __init__(self, perform: Perform) -> None:
        self._perform = perform

    def active(self) -> None:
        enqueue(self._perform, Task("block", PAYLOAD, task_id="id-active"), self.started)
        self._perform(dequeue("default", limit=1, token="server/1", now=self.started))
        self._perform(renew("default", [self._claim("id-active")], now=self.beat))
        write_state(self._perform, "active", self.beat)

    def finish(self) -> None:
        self._perform(settle_done("default", [DoneTask(*self._claim("id-active"), "")], now=later(self.done)))

    def outcomes(self) -> None:
        hashes = {
            key.rpartition(":")[2]: entry.parts
            for key, entry in golden_snapshot("outcomes").items()
            if entry.type == "hash"
        }
        for task_id in hashes:
            enqueue(self._perform, Task("t", PAYLOAD, task_id=task_id), self.done)
        self._perform(dequeue("default", limit=5, token="server/1", now=self.done))
        self._perform(write_result("default", "id-keep", "server/1", b"result-bytes", lease_score=2**32))
        self._settle(hashes)
        write_state(self._perform, "outcomes", self.last_beat)

    def _settle(self, hashes: Hashes) -> None:
        now, second = later(self.failed), self.failed.seconds
        retries = [
            RetryTask(self._claim(task_id), hashes[task_id]["msg"], second + 3600, True, b"")
            for task_id in ("id-fail", "id-panic")
        ]
        archives = [
            ArchiveTask(self._claim(task_id), hashes[task_id]["msg"], second, b"")
            for task_id in ("id-skip", "id-nohandler")
        ]
        kept = CompleteTask(self._claim("id-keep"), "", hashes["id-keep"]["msg"], second + 3600, None)
        self._perform(settle_retry("default", retries, now=now))
        self._perform(settle_archive("default", archives, max_size=9_999, cutoff=0, now=now))
        self._perform(settle_complete("default", [kept], now=now))

    def shut_down(self) -> None:
        info = records("outcomes")[0]
        self._perform(clear_server_state(info.host, info.pid, info.server_id))

    def _claim(self, task_id: str) -> Claim:
        return Claim(task_id, "server/1", self.last_beat.seconds + 30)


def records(name: str) -> tuple[ServerInfo, list[WorkerInfo]]:
    """Return what a server of Asynq wrote about itself and its tasks."""
    golden = golden_snapshot(name)
    [server] = [entry for key, entry in golden.items() if key.startswith("asynq:servers:")]
    workers = [entry.parts for key, entry in golden.items() if key.startswith("asynq:workers:")]
    infos = [WorkerInfo.decode(data) for parts in workers for data in parts.values()]
    return ServerInfo.decode(server.parts["value"]), infos


def later(now: Instant) -> Instant:
    """Return the same time a century later."""
    return now.plus(CENTURY.total_seconds())


def test_three_tasks_wait_as_asynqs_do(perform: Perform, redis_client: RedisClient) -> None:
    """The queue's order, and its pause."""
    now = enqueue_three_and_pause(perform)
    assert 1795168581 == now.seconds
    check("three_pending_paused", golden_snapshot("three_pending_paused"), redis_client)


def enqueue_three_and_pause(perform: Perform) -> Instant:
    """Do what the client and the inspector of the vectors did; return when."""
    golden = golden_snapshot("three_pending_paused")
    for task_id in "abc":
        since = int(golden[f"asynq:{{default}}:t:{task_id}"].parts["pending_since"])
        now = Instant(since // 10**9, since // 1000 % 10**6)
        enqueue(perform, Task("email:deliver", PAYLOAD, task_id=task_id), now)
    perform(pause_queue("default", now=now))
    return now


def test_a_task_archived_and_run_by_hand_is_as_asynqs(perform: Perform, redis_client: RedisClient) -> None:
    """At the other end of the queue, after the pause."""
    now = enqueue_three_and_pause(perform)
    perform(unpause_queue("default"))
    perform(archive_tasks("default", ["b"], limits=ArchiveLimits(9_999, 0), now=now))
    check("archive_pending_by_inspector", golden_snapshot("archive_pending_by_inspector"), redis_client)
    perform(run_tasks("default", ["b"], now=now))
    check("run_archived_by_inspector", golden_snapshot("run_archived_by_inspector"), redis_client)


def test_asynqs_scheduler_entries_and_history_are_read(perform: Perform, redis_client: RedisClient) -> None:
    """The other way round: the bytes of the vector are restored, and read."""
    golden = golden_snapshot("scheduler")
    [records] = [key for key in golden if key.startswith("asynq:schedulers:")]
    [history] = [key for key in golden if key.startswith("asynq:scheduler_history:")]
    redis_client.zadd("asynq:schedulers", {records: 2_000_000_000})
    redis_client.rpush(records, *golden[records].parts["value"])
    scores = golden[history].parts.items()
    redis_client.zadd(history, {member.encode(errors="surrogateescape"): score for member, score in scores})
    tick, five = perform(scheduler_entries(Instant(1_999_999_990)))
    assert ("@every 2s", "cron:tick", PAYLOAD) == (tick.spec, tick.task.type, tick.task.payload)
    assert {"queue": "low", "timeout": timedelta(minutes=1)} == tick.task.options
    assert ("*/5 * * * *", "cron:five", None) == (five.spec, five.task.type, five.task.payload)
    assert (None, True) == (five.previous_enqueue_at, tick.previous_enqueue_at is not None)
    events = perform(scheduler_events(tick.id, page=1, page_size=100))
    enqueued = {key.rpartition(":")[2] for key in golden if key.startswith("asynq:{low}:t:")}
    assert enqueued == {event.task_id for event in events}
    times = [event.enqueued_at for event in events if event.enqueued_at]
    assert sorted(times, reverse=True) == times


def test_an_active_task_is_as_asynqs(perform: Perform, redis_client: RedisClient) -> None:
    """The lease and the records of its server are equal too."""
    Worker(perform).active()
    check("active", golden_snapshot("active"), redis_client)


def test_a_done_task_is_gone_as_asynqs(perform: Perform, redis_client: RedisClient) -> None:
    """The records of the server still show it, until the next beat."""
    worker = Worker(perform)
    worker.active()
    worker.finish()
    check("done", moved_counters(golden_snapshot("done")), redis_client)


def test_outcomes_are_written_as_asynq_writes_them(perform: Perform, redis_client: RedisClient) -> None:
    """Retry, archive, completion with a result, counters, and the records of a server without tasks."""
    worker = Worker(perform)
    worker.active()
    worker.finish()
    worker.outcomes()
    check("outcomes", moved_counters(golden_snapshot("outcomes")), redis_client)
    worker.shut_down()
    check("after_shutdown", moved_counters(golden_snapshot("after_shutdown")), redis_client)


class Scheduler:
    """Does what the scheduler of the vectors did, at the times that its records tell."""

    def __init__(self, perform: Perform) -> None:
        self._perform = perform
        self._golden = golden_snapshot("scheduler")
        [self._key] = [key for key in self._golden if key.startswith("asynq:schedulers:")]
        [self._history] = [key for key in self._golden if key.startswith("asynq:scheduler_history:")]

    def run(self) -> None:
        records = self._golden[self._key].parts["value"]
        entries = [SchedulerEntry.decode(data) for data in reversed(records)]
        beat = Instant(int(self._golden["asynq:schedulers"].parts[self._key]) - 20)
        self._perform(write_scheduler_entries(self._scheduler_id, entries, now=beat))
        ticking = entries[0]
        for data in self._golden[self._history].parts:
            self._tick(ticking, SchedulerEnqueueEvent.decode(data.encode(errors="surrogateescape")))

    def _tick(self, entry: SchedulerEntry, event: SchedulerEnqueueEvent) -> None:
        since = int(self._golden[f"asynq:{{low}}:t:{event.task_id}"].parts["pending_since"])
        now = Instant(since // 10**9, since // 1000 % 10**6)
        options: EnqueueOptions = {"queue": "low", "timeout": 60, "max_retry": 1, "task_id": event.task_id}
        composed = compose(Task(entry.task_type, entry.task_payload, **options), {}, now=now)
        self._perform(
            registered(fire(composed, entry_id=entry.id, tick=now.seconds, now=now), composed.settings.queue),
        )
        self._perform(record_enqueue_event(entry.id, event))

    def shut_down(self) -> None:
        self._perform(clear_scheduler_entries(self._scheduler_id))
        self._perform(clear_scheduler_history(self._history.rpartition(":")[2]))

    @property
    def _scheduler_id(self) -> str:
        return self._key.removeprefix("asynq:schedulers:").strip("{}")


def test_a_scheduler_leaves_what_asynqs_leaves(perform: Perform, redis_client: RedisClient) -> None:
    """Its entries, the tasks of its ticks and their history; our own key for the last tick is new."""
    scheduler = Scheduler(perform)
    scheduler.run()
    check("scheduler", golden_snapshot("scheduler"), redis_client)
    scheduler.shut_down()
    check("scheduler_shutdown", golden_snapshot("scheduler_shutdown"), redis_client)


def write_state(perform: Perform, name: str, now: Instant) -> None:
    """Write the records of the server of a vector."""
    info, workers = records(name)
    perform(write_server_state(info, workers, now=now))


def test_an_aggregation_is_as_asynqs(perform: Perform, redis_client: RedisClient) -> None:
    """Three members, first in their set, then made into one task that is being run."""
    joined, staged, taken = Instant(1795168605), Instant(1795168606), Instant(1795168610)
    one = AggregationSet("default", "user:1", "0ad1ce62-accc-44bb-b776-5abe7d5df057")
    for task_id in ("m1", "m2", "m3"):
        enqueue(perform, Task("note", task_id.encode(), task_id=task_id, group=one.group), joined)
    limits = [(one.group, GroupLimits(grace=1))]
    perform(check_groups("default", limits, most_sets=3, now=staged, new_id=lambda: one.id))
    write_state(perform, "aggregation_set_staged", Instant(1795168605))
    [record] = redis_client.keys("asynq:servers:*")
    redis_client.expire(record, 7)  # Asynq's was looked at three seconds later
    check("aggregation_set_staged", golden_snapshot("aggregation_set_staged"), redis_client)

    aggregate = compose(Task("notes", b"user:13", task_id="aggregated"), {}, now=staged)
    assert Finish.DONE is perform(finish_set(one, aggregate, locks=(), now=staged))
    perform(dequeue("default", limit=1, token="server/1", now=taken))
    write_state(perform, "aggregated", Instant(1795168610))
    check("aggregated", golden_snapshot("aggregated"), redis_client)


def test_every_vector_is_compared() -> None:
    """And no intended difference speaks of a vector that is not compared."""
    covered = CLIENT_CALLS.keys() | {
        *WORKER_CALLS,
        *AGGREGATOR_CALLS,
        *INSPECTOR_CALLS,
        *SCHEDULER_CALLS,
    }
    assert VECTORS.keys() == covered
    assert {entry.vector for entry in INTENDED} <= covered
    assert len(INTENDED) == len({entry[:3] for entry in INTENDED})


def test_a_difference_of_each_kind_is_seen() -> None:
    """The comparison itself can fail."""
    golden = golden_snapshot("enqueue_all_options")
    key = "asynq:{critical}:t:id-all"
    lock = next(key for key in golden if ":unique:" in key)
    entry = golden[key]
    changes: dict[tuple[str, str], Any] = {
        (key, "state"): golden | {key: entry._replace(parts=entry.parts | {"state": b"active"})},
        (key, "extra"): golden | {key: entry._replace(parts=entry.parts | {"extra": b""})},
        (key, "type"): golden | {key: entry._replace(type="set")},
        ("new", "type"): golden | {"new": Entry("string", {"value": b""}, None)},
        (lock, "ttl"): golden | {lock: golden[lock]._replace(ttl=3599.4)},
        (key, "ttl"): golden | {key: entry._replace(ttl=1)},
    }
    for place, changed in changes.items():
        assert {place} == differences(golden, changed).keys()
