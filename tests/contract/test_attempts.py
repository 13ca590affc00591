"""What settles write of attempts that did not succeed, of progress, and what a task's description shows."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._broker.inspecting.tasks import get_task, scan_tasks
from pyasynq._broker.leases import PoisonTask, RecoverTask, archive_poison, recover
from pyasynq._broker.results import write_progress
from pyasynq._broker.settle import (
    ArchiveTask,
    CompleteTask,
    RetryTask,
    settle_archive,
    settle_complete,
    settle_retry,
)
from pyasynq._broker.task_records import decode_task_info
from pyasynq._wire.history import (
    NO_HISTORY,
    NO_PROGRESS,
    HistoryEntry,
    ProgressJson,
    decode_attempts,
    encode_attempt,
)
from pyasynq.task import AttemptInfo, TaskState
from tests.contract.settling import (
    CUTOFF,
    EXPIRES_AT,
    RETENTION,
    completed_bytes,
    done,
    failed_bytes,
    requeue,
)
from tests.factories import LEASE_SCORE, NOW, TOKEN, Tasks, claim
from tests.fix_broker import BlockingPerformer, Perform

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq._broker.settle import Settled
    from pyasynq._redis.plan import Plan
    from tests.invariants import RedisClient

EXPIRED = NOW.seconds - 60
PROGRESS = ProgressJson(b'{"done":1,"at":2000000000}')
OLD = b'{"done":0,"at":1999999999}'


def record(number: int = 0) -> HistoryEntry:
    """Return the JSON of an attempt, which says what is hard for a script that cuts text."""
    error = f"{number}: ]],\n[ \\n \N{GREEK SMALL LETTER ALPHA}"
    return encode_attempt("retried", error, server="s", started_at=1.0, ended_at=2.0 + number)


def retry(
    attempt: HistoryEntry, *, progress: ProgressJson = NO_PROGRESS, message: bytes | None = None
) -> Plan[Settled]:
    """Settle the attempt of `a`, whose task is to be tried again."""
    bytes_ = failed_bytes("a") if message is None else message
    task = RetryTask(claim("a"), bytes_, NOW.seconds + 90, True, b"", attempt, progress)
    return settle_retry("default", [task], now=NOW)


def archive(attempt: HistoryEntry, *, progress: ProgressJson = NO_PROGRESS) -> Plan[Settled]:
    """Settle the attempt of `a`, whose task failed for good."""
    task = ArchiveTask(claim("a"), failed_bytes("a"), NOW.ceiling, b"", attempt, progress)
    return settle_archive("default", [task], max_size=9_999, cutoff=CUTOFF, now=NOW)


def recovered(attempt: HistoryEntry) -> Plan[Any]:
    """Take `a` back from a dead worker."""
    return recover("default", [RecoverTask("a", TOKEN, EXPIRED, attempt)], now=NOW)


def poisoned(attempt: HistoryEntry) -> Plan[Any]:
    """Archive `a`, with which too many workers have died."""
    task = PoisonTask("a", TOKEN, EXPIRED, failed_bytes("a", 0), NOW.ceiling, b"", attempt)
    return archive_poison("default", [task], max_size=9_999, cutoff=CUTOFF, now=NOW)


ending = pytest.mark.parametrize(
    ("end", "lease"),
    [(retry, LEASE_SCORE), (archive, LEASE_SCORE), (recovered, EXPIRED), (poisoned, EXPIRED)],
)


@ending
def test_an_attempt_that_did_not_succeed_is_added_in_front(
    perform: Perform, tasks: Tasks, end: Callable[[bytes], Plan[Any]], lease: int
) -> None:
    """Fails if the script no longer calls HSET or reverses the order."""
    for number in range(3):
        _take_again(tasks, lease)
        perform(end(record(number)))
    assert [2, 1, 0] == [int(one["error"].partition(":")[0]) for one in _attempts(tasks)]


@ending
def test_without_a_record_there_is_no_history(
    perform: Perform, tasks: Tasks, end: Callable[[bytes], Plan[Any]], lease: int
) -> None:
    """A task that was only sent away, or quarantined."""
    tasks.active("a", lease=lease)
    perform(end(b""))
    assert "x:attempts" not in tasks.fields("a")


def test_the_newest_ten_attempts_are_kept(redis_client: RedisClient, tasks: Tasks) -> None:
    """At each length the stored text is JSON."""
    perform = BlockingPerformer(redis_client)
    for number in range(13):
        _take_again(tasks, LEASE_SCORE)
        perform(retry(record(number)))
        expected = list(range(number, max(-1, number - 10), -1))
        assert expected == [int(one["error"].partition(":")[0]) for one in _attempts(tasks)]


def _attempts(tasks: Tasks) -> list[dict[str, Any]]:
    attempts: list[dict[str, Any]] = json.loads(tasks.fields("a")["x:attempts"])
    return attempts


def _take_again(tasks: Tasks, lease: int) -> None:
    tasks.client.delete(tasks.keys.retry, tasks.keys.archived, tasks.keys.pending)
    tasks.client.hdel(tasks.keys.task("a"), "pending_since", "x:crashes")
    tasks.active("a", lease=lease)


def test_a_task_of_many_attempts_counts_them_once_each(perform: Perform, tasks: Tasks) -> None:
    """Each task of one call has its own."""
    tasks.active("a", "b", "c")
    decisions = [
        RetryTask(claim(task_id), failed_bytes(task_id), NOW.seconds + 90, True, b"", attempt)
        for task_id, attempt in (("a", record(1)), ("b", NO_HISTORY), ("c", record(3)))
    ]
    perform(settle_retry("default", decisions, now=NOW))
    assert b"[" + record(1) + b"]" == tasks.fields("a")["x:attempts"]
    assert "x:attempts" not in tasks.fields("b")
    assert b"[" + record(3) + b"]" == tasks.fields("c")["x:attempts"]


def test_a_snoozed_task_keeps_message_and_traceback(perform: Perform, tasks: Tasks) -> None:
    """Nothing has failed, so the last failure is still the last."""
    tasks.active("a", retried=1, error_msg="oops", last_failed_at=NOW.seconds - 9, extra={"x:trace": b"old"})
    before = tasks.fields("a")
    task = RetryTask(claim("a"), b"", NOW.seconds + 90, False, b"", record())
    perform(settle_retry("default", [task], now=NOW))
    del before["x:attempt"]
    assert before | {"state": b"retry", "x:attempts": b"[" + record() + b"]"} == tasks.fields("a")
    assert {"a": NOW.seconds + 90} == tasks.scores("retry")
    assert {} == tasks.counts()


@pytest.mark.parametrize("retained", [False, True])
def test_a_success_writes_no_history_and_a_kept_task_keeps_it(
    perform: Perform, tasks: Tasks, retained: bool
) -> None:
    """How it came to succeed is worth knowing."""
    tasks.active("a", retention=RETENTION, extra={"x:attempts": b"[" + record() + b"]"})
    task = CompleteTask(claim("a"), "", completed_bytes("a"), EXPIRES_AT, None)
    perform(settle_complete("default", [task], now=NOW) if retained else done([claim("a")]))
    assert ({"x:attempts": b"[" + record() + b"]"} if retained else {}) == {
        name: value for name, value in tasks.fields("a").items() if name == "x:attempts"
    }


def test_requeued_tasks_have_no_attempt_to_tell_of(perform: Perform, tasks: Tasks) -> None:
    """They are as if they had not been taken."""
    tasks.active("a", extra={"x:progress": PROGRESS})
    perform(requeue([claim("a")]))
    assert "x:attempts" not in tasks.fields("a")
    assert PROGRESS == tasks.fields("a")["x:progress"]


@pytest.mark.parametrize("kind", ["retry", "archive", "complete"])
@pytest.mark.parametrize(("progress", "expected"), [(NO_PROGRESS, OLD), (PROGRESS, PROGRESS)])
def test_the_last_progress_goes_with_the_outcome(
    perform: Perform, tasks: Tasks, kind: str, progress: ProgressJson, expected: bytes
) -> None:
    """Fails if the script no longer calls HSET; without a new one the old one stays."""
    tasks.active("a", retention=RETENTION, extra={"x:progress": OLD})
    if kind == "complete":
        task = CompleteTask(claim("a"), "", completed_bytes("a"), EXPIRES_AT, None, progress)
        perform(settle_complete("default", [task], now=NOW))
    else:
        perform((retry if kind == "retry" else archive)(NO_HISTORY, progress=progress))
    assert expected == tasks.fields("a")["x:progress"]


def test_progress_is_written_only_by_the_attempt_that_runs_the_task(perform: Perform, tasks: Tasks) -> None:
    """The progress is written by the attempt that holds the task, as its result is."""
    tasks.active("a")
    assert perform(write_progress("default", "a", TOKEN, PROGRESS, lease_score=LEASE_SCORE))
    assert not perform(write_progress("default", "a", "server/2", b"late", lease_score=LEASE_SCORE))
    assert PROGRESS == tasks.fields("a")["x:progress"]
    assert "result" not in tasks.fields("a")


def test_the_description_of_a_task_shows_attempts_and_progress(perform: Perform, tasks: Tasks) -> None:
    """Lists leave out the attempts, which can be long."""
    extra = {"x:attempts": b"[" + record(1) + b",\n" + record(0) + b"]", "x:progress": PROGRESS}
    tasks.put(TaskState.RETRY, "a", extra=extra, last_failed_at=NOW.seconds)
    tasks.put(TaskState.RETRY, "b", last_failed_at=NOW.seconds)
    info = decode_task_info(perform(get_task("default", "a")), NOW)
    assert decode_attempts(extra["x:attempts"]) == info.attempts
    assert isinstance(info.attempts[1], AttemptInfo)
    assert (2.0, 3.0) == tuple(one.ended_at.timestamp() for one in info.attempts)
    assert info.progress is not None
    assert (1, datetime.fromtimestamp(NOW.seconds, UTC)) == (info.progress.done, info.progress.at)
    bare = decode_task_info(perform(get_task("default", "b")), NOW)
    assert ((), None) == (bare.attempts, bare.progress)
    listed = [
        decode_task_info(one, NOW) for one in perform(scan_tasks("default", TaskState.RETRY, 0, 9)).records
    ]
    assert [((), info.progress), ((), None)] == [(one.attempts, one.progress) for one in listed]
