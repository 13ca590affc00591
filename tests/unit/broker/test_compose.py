from __future__ import annotations

import copy
import dataclasses
import os
import pickle
import uuid
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._broker.enqueueing.compose import Composed, compose, new_task_id, new_task_info
from pyasynq._clock import Instant
from pyasynq._wire.keys import queue_keys
from pyasynq._wire.messages import decode_task_message
from pyasynq.errors import InvalidOptionError, UnknownOptionError
from pyasynq.task import Task, TaskInfo, TaskState

if TYPE_CHECKING:
    from collections.abc import Mapping

NOW = Instant(2_000_000_000, 250_000)


def composed(task: Task, options: Mapping[str, object] | None = None, now: Instant = NOW) -> Composed:
    """Compose at NOW, with the id `new` unless another is given."""
    return compose(task, options or {}, now=now, new_id=lambda: "new")


def test_a_task_without_options_has_asynqs_defaults() -> None:
    """25 retries, 30 minutes, queue `default`, at once, and nothing else."""
    result = composed(Task("t", b"p"))
    message = decode_task_message(result.encoded)
    assert ("t", b"p", "new", "default", 25, 1800) == (
        message.type,
        message.payload,
        message.id,
        message.queue,
        message.retry,
        message.timeout,
    )
    assert (0, 0, "", 0, {}) == (
        message.deadline,
        message.retention,
        message.unique_key,
        message.retried,
        dict(message.headers),
    )
    assert (TaskState.PENDING, 0, 0) == (result.state, result.score, result.lock_ttl)


def test_a_task_with_a_group_waits_in_it() -> None:
    """Unless its process time lies ahead; the message names the group in both cases."""
    now, later = composed(Task("t", group="g")), composed(Task("t", group="g", process_in=60))
    assert (TaskState.AGGREGATING, 0, "g") == (now.state, now.score, now.settings.group)
    assert (TaskState.SCHEDULED, NOW.ceiling + 60, "g") == (later.state, later.score, later.settings.group)
    assert TaskState.AGGREGATING is composed(Task("t", group="g", process_in=0)).state


@pytest.mark.parametrize("group", ["", "  ", 7])
def test_a_blank_group_is_refused(group: Any) -> None:
    """The error names the option."""
    with pytest.raises(InvalidOptionError, match=r"^group="):
        composed(Task("t"), {"group": group})


def test_what_is_known_of_it_is_what_the_message_says() -> None:
    """The encoded bytes need not be decoded again."""
    result = composed(Task("t", b"p", headers={"b": "1", "a": "2"}, queue="low", group="g"))
    message = decode_task_message(result.encoded)
    assert ("new", "t", b"p") == (result.id, result.type, result.payload)
    assert ("new", "t", b"p") == (message.id, message.type, message.payload)
    assert (
        ("low", "g") == (result.settings.queue, result.settings.group) == (message.queue, message.group_key)
    )
    assert result.settings.headers == dict(message.headers)


def test_options_of_the_call_win_over_those_of_the_task() -> None:
    """Setting by setting; headers are merged key by key."""
    task = Task("t", queue="low", max_retry=1, headers={"a": "task", "b": "task"})
    result = composed(task, {"max_retry": 2, "headers": {"b": "call", "c": "call"}})
    message = decode_task_message(result.encoded)
    assert ("low", 2) == (message.queue, message.retry)
    assert {"a": "task", "b": "call", "c": "call"} == dict(message.headers)


def test_a_process_time_of_the_call_replaces_a_delay_of_the_task() -> None:
    """They are one setting."""
    task = Task("t", process_in=3600)
    assert TaskState.PENDING is composed(task, {"process_at": NOW.to_datetime()}).state


@pytest.mark.parametrize(
    ("microseconds", "state", "score"),
    [(-1, TaskState.PENDING, 0), (0, TaskState.PENDING, 0), (1, TaskState.SCHEDULED, NOW.ceiling)],
)
def test_a_task_is_scheduled_if_its_time_lies_after_now(
    microseconds: int, state: TaskState, score: int
) -> None:
    """A microsecond is enough, and the score is never too early."""
    moment = NOW.to_datetime() + timedelta(microseconds=microseconds)
    result = composed(Task("t", process_at=moment))
    assert (state, score) == (result.state, result.score)


def test_a_delay_counts_from_now() -> None:
    """None is none at all."""
    assert NOW.seconds + 61 == composed(Task("t", process_in=60)).score
    assert TaskState.PENDING is composed(Task("t", process_in=0)).state


@pytest.mark.parametrize(
    ("options", "ttl"),
    [
        ({"unique": 600}, 600),
        ({"unique": 600, "process_in": 3600}, 4200),
        ({"unique": 1, "process_in": 0.2}, 2),
        ({"unique": 1, "process_in": 1.2}, 3),
    ],
)
def test_w24_a_lock_holds_for_its_time_after_the_process_time(options: dict[str, Any], ttl: int) -> None:
    """Rounded up, so it is never 0; Asynq cuts the fraction off."""
    assert ttl == composed(Task("t", **options)).lock_ttl


def test_w24_a_lock_counts_whole_seconds_that_fractions_add_up_to() -> None:
    """From .75 to .25 of the next second but one is a second and a half."""
    moment = Instant(NOW.seconds + 2, 250_000).to_datetime()
    task = Task("t", unique=10, process_at=moment)
    assert 12 == composed(task, now=Instant(NOW.seconds, 750_000)).lock_ttl


def test_the_lock_of_a_unique_task_is_that_of_its_queue_type_and_payload() -> None:
    """No payload and an empty one are two locks."""
    for payload in (None, b"", b"{}"):
        result = composed(Task("t", payload, unique=60), {"queue": "low"})
        named = decode_task_message(result.encoded).unique_key
        assert queue_keys("low").unique("t", payload) == result.lock == named


def test_wrong_options_are_named() -> None:
    """The options of the task and those of the call."""
    with pytest.raises(InvalidOptionError, match="max_retry"):
        composed(Task("t", max_retry=-1))
    with pytest.raises(UnknownOptionError, match="max_retry"):
        composed(Task("t"), {"max_retries": 1})


def test_new_ids_are_random_uuids() -> None:
    """Version 4, all different, more than one pool of them."""
    ids = {new_task_id() for _ in range(1_000)}
    assert 1_000 == len(ids)
    for text in ids:
        parsed = uuid.UUID(text)
        assert (text, 4, uuid.RFC_4122) == (str(parsed), parsed.version, parsed.variant)


def test_a_forked_child_makes_ids_of_its_own() -> None:
    """It drops the parent's pool, or both would hand out the same ids."""
    new_task_id()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, new_task_id().encode())
        os._exit(0)
    os.waitpid(child, 0)
    childs = os.read(reader, 100).decode()
    os.close(reader)
    os.close(writer)
    assert 4 == uuid.UUID(childs).version
    assert childs not in {new_task_id() for _ in range(200)}


def test_a_task_that_was_just_enqueued_is_described() -> None:
    """Times are aware; what is not set is None."""
    options: dict[str, Any] = {
        "retention": 60,
        "headers": {"k": "v"},
        "deadline": datetime(2040, 1, 1, tzinfo=UTC),
    }
    pending = new_task_info(composed(Task("t", b"p", **options)), NOW)
    assert (NOW.to_datetime(), timedelta(minutes=1), {"k": "v"}) == (
        pending.next_process_at,
        pending.retention,
        pending.headers,
    )
    assert (None, datetime(2040, 1, 1, tzinfo=UTC)) == (pending.timeout, pending.deadline)
    scheduled = new_task_info(composed(Task("t", process_in=60)), NOW)
    assert datetime.fromtimestamp(NOW.ceiling + 60, UTC) == scheduled.next_process_at
    assert (timedelta(minutes=30), None) == (scheduled.timeout, scheduled.deadline)


def test_a_description_is_like_one_that_was_constructed() -> None:
    """It is made without the constructor, for speed, without a visible difference."""
    info = new_task_info(composed(Task("t", b"p", queue="low", headers={"a": "1"}, retention=60)), NOW)
    values = {field.name: getattr(info, field.name) for field in dataclasses.fields(TaskInfo)}
    assert TaskInfo(**values) == info == pickle.loads(pickle.dumps(info)) == copy.copy(info)
    assert repr(TaskInfo(**values)) == repr(info)
    assert "u" == dataclasses.replace(info, type="u").type
    with pytest.raises(dataclasses.FrozenInstanceError):
        info.type = "u"  # type: ignore[misc] # that is the point
