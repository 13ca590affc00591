"""Data of earlier releases in Redis is still processed: every task, in every state.

`python -m tools.record_release` writes one file for each release. A peer of the next release, too, may write
what this one does not know: that is kept.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import redis

from pyasynq import DuplicateTaskError, EnqueueOptions, TaskState, testing
from tests.invariants import check_invariants
from tools.record_release import CONFIG, FOLDER, Recorded, restore

if TYPE_CHECKING:
    from collections.abc import Iterator

UNKNOWN_FIELD = b"\xca\x3e\x03new"
"""Field 1001 of a message: bytes `new`."""


class Past(NamedTuple):
    """A recorded release, opened with the code of today."""

    recorded: Recorded
    kit: testing.Kit
    client: redis.Redis


@pytest.fixture(params=sorted(FOLDER.glob("*.json")), ids=lambda path: Path(path).stem)
def past(request: pytest.FixtureRequest) -> Iterator[Past]:
    """Each recorded release, with something newer in every task; its time goes on where it stopped."""
    content: dict[str, Any] = json.loads(request.param.read_text("utf-8"))
    recorded = Recorded()
    start = datetime.fromtimestamp(content["now"], UTC)
    with (
        testing.use(recorded.app, config=CONFIG, start=start) as kit,
        redis.Redis.from_url(kit.url) as client,
    ):
        restore(client, content["database"])
        for key in client.keys("asynq:*:t:*"):
            client.hset(key, mapping={"x:future": "kept", "msg": client.hget(key, "msg") + UNKNOWN_FIELD})
        recorded.failing = False
        yield Past(recorded, kit, client)
        for key in client.keys("asynq:*:t:*"):
            client.hdel(key, "x:future")
        client.delete("pyasynq:testing")
        check_invariants(client)


def test_there_is_a_record_of_this_release() -> None:
    """The version in pyproject.toml is that of the newest one."""
    assert any(FOLDER.glob("*.json"))


def test_what_waited_runs_once_with_its_arguments(past: Past) -> None:
    """Pending at once, scheduled and retried ones when they are due, in a day all but what is held back."""
    past.kit.drain_sync()
    assert {"pending", "limited", "m1+m2"} == set(past.recorded.ran)
    past.kit.advance_sync(days=1)
    ran = [name for name in past.recorded.ran if name != "tick"]
    everything = {"pending", "limited", "m1+m2", "active", "retry", "scheduled", "unique", "named", "m3"}
    assert sorted(everything | {"head", "behind"}) == sorted(ran)
    assert 4 == json.loads(past.kit.inspector.task_info("default", "pending").result or b"")


def test_a_task_that_its_worker_died_with_is_recovered_with_its_crash_counted(past: Past) -> None:
    """The task still holds its uniqueness lock."""
    with pytest.raises(DuplicateTaskError):
        past.kit.sync_client.enqueue("record:fail", b'{"text":"x"}', queue="crashes", unique=60)
    past.recorded.failing = True
    past.kit.advance_sync(seconds=40, raises=False)
    info = past.kit.inspector.task_info("crashes", "active")
    assert (TaskState.RETRY, 1) == (info.state, info.retried)
    assert ["crashed", "retried"] == [attempt.outcome for attempt in info.attempts]


def test_a_retry_keeps_its_history_and_adds_to_it(past: Past) -> None:
    """Attempts, progress and headers are those of the release that wrote them."""
    past.recorded.failing = True
    past.kit.advance_sync(minutes=2, raises=False)
    info = past.kit.inspector.task_info("default", "retry")
    assert info.retried >= 2
    assert {"trace": "t1"} == info.headers
    assert info.attempts[0].error.startswith("RuntimeError: no route")
    assert info.progress is not None
    assert (1, 2, "half") == (info.progress.done, info.progress.total, info.progress.note)


def test_what_was_finished_can_be_read_and_run_again(past: Past) -> None:
    """The result of a completed task, the error of an archived one."""
    assert b"3" == past.kit.inspector.task_info("default", "completed").result
    archived = past.kit.inspector.task_info("default", "archived")
    assert (TaskState.ARCHIVED, True) == (archived.state, "no way" in archived.last_error)
    past.kit.inspector.run_task("default", "archived")
    past.kit.drain_sync()
    assert "archived" in past.recorded.ran


def test_locks_are_held_by_their_tasks_until_those_have_run(past: Past) -> None:
    """Locks of type and payload, and locks with an explicit name."""
    plain: EnqueueOptions = {"unique": 60}
    named: EnqueueOptions = {"unique": 60, "unique_key": "k"}
    for options in (plain, named):
        with pytest.raises(DuplicateTaskError):
            past.kit.sync_client.enqueue("record:add", b'{"a":4,"b":4}', **options)
    past.kit.advance_sync(hours=3)
    past.kit.sync_client.enqueue("record:add", b'{"a":4,"b":4}', unique=60, unique_key="k")


def test_queues_are_paused_limited_and_ordered_as_they_were(past: Past) -> None:
    """The head of the ordered queue runs before what is behind it, though it is a retry."""
    limits = past.kit.inspector.queue_info("limited").limits
    assert (2, 1.0) == (limits.max_run, limits.rate)
    past.kit.advance_sync(hours=2)
    assert past.recorded.ran.index("head") < past.recorded.ran.index("behind")
    assert "paused" not in past.recorded.ran
    past.kit.inspector.unpause_queue("paused")
    past.kit.drain_sync()
    assert "paused" in past.recorded.ran


def test_a_tick_that_was_fired_is_not_fired_again_and_the_next_one_is_in_time(past: Past) -> None:
    """The entry has the id that it had."""
    past.kit.advance_sync(timedelta(minutes=59, seconds=59))
    assert "tick" not in past.recorded.ran
    past.kit.advance_sync(seconds=1)
    assert 1 == past.recorded.ran.count("tick")


def test_fields_of_a_newer_peer_are_kept_through_a_crash_and_a_retry(past: Past) -> None:
    """The lock is set in the hash, and in the message, which is rewritten."""
    past.recorded.failing = True
    past.kit.advance_sync(minutes=2, raises=False)
    for key in ("asynq:{crashes}:t:active", "asynq:{default}:t:retry"):
        assert b"kept" == past.client.hget(key, "x:future")
        assert UNKNOWN_FIELD in (past.client.hget(key, "msg") or b"")
