"""Which tasks match a query."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pyasynq._clock import Instant
from pyasynq._error_signature import POISON_PREFIX, error_signature, poison_error, signature_id
from pyasynq.operations.query import MatchFacts, RunningFacts, parse_query
from pyasynq.task import TaskInfo, TaskState

NOW = datetime(2033, 5, 18, 3, 33, 20, tzinfo=UTC)
HOUR = timedelta(hours=1)


def task(state: str = "retry", **values: Any) -> TaskInfo:
    """Return a task."""
    known: dict[str, Any] = {
        "id": "t1",
        "queue": "mail",
        "type": "email:deliver",
        "payload": (
            b'{"user": {"id": 42, "name": "Ann"}, "tags": ["red", "blue"],'
            b' "price": 0.1, "big": 9007199254740993}'
        ),
        "max_retry": 25,
        "retried": 3,
        "timeout": None,
        "deadline": None,
        "next_process_at": NOW + HOUR,
        "retention": timedelta(0),
        "headers": {"tenant": "acme", "n": "7"},
        "last_error": "boom: timeout after 30 s",
        "last_failed_at": NOW - HOUR,
    }
    return TaskInfo(state=TaskState(state), **known | values)


def matching(text: str, one: TaskInfo, **running: Any) -> bool:
    """Return whether a task matches a query."""
    facts = {(one.queue, one.id): RunningFacts(**running)} if running else {}
    return parse_query(text).matches(one, MatchFacts(Instant.from_datetime(NOW), facts))


SIGNATURE = signature_id(error_signature("boom: timeout after 30 s"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "*",
        "state:retry,archived",
        "queue:mail",
        "queue:m*l",
        "id:t1,t2",
        "type:email:*",
        "type:*:deliver",
        "type:e*il*er",
        'type:"email:deliver"',
        "-type:image",
        "error:timeout",
        f"error:sig:{SIGNATURE}",
        f"error:sig:{SIGNATURE[:3]}",
        "payload:Ann",
        'payload:"\\"id\\": 42"',
        "payload.user.id:42",
        "payload.user.id:>=42",
        "payload.user.id:40..50",
        "payload.user.id:..42",
        "payload.user.name:A*",
        'payload."user"."name":"Ann"',
        "payload.user:*",
        "payload.*.name:Ann",
        "payload.tags:red",
        "payload.tags.1:blue",
        "payload.tags.*:blue",
        "payload.price:0.1",
        "payload.price:<=0.10",
        "payload.big:9007199254740993",
        "-payload.big:9007199254740992",
        "header.tenant:acme",
        "header.tenant:a*e",
        "header.n:>6",
        "retried:3",
        "retried:>2",
        "retried:<=3",
        "max_retry:20..30",
        "size:<1kB",
        "due:<2h",
        "due:>30m",
        "due:future",
        "due:2033-05-18",
        "due:2033-05-18T04:00Z..2033-05-18T05:00+00:00",
        "failed:<=1h",
        "failed:59m..61m",
        "failed:>2033-05-18T02:00Z",
        "timeout",
        "deliver Ann",
        "nothing OR timeout",
        "(nothing OR timeout) -(image OR queue:x)",
        "t1 AND email",
    ],
)
def test_the_task_matches(text: str) -> None:
    """Each field, and how clauses are joined."""
    assert matching(text, task())


@pytest.mark.parametrize(
    "text",
    [
        "state:pending",
        "queue:mai",
        "id:t",
        "type:email",
        "type:deliver",
        "type:email:*:x",
        "error:Timeout",
        "error:sig:00",
        "payload:Bob",
        "payload.user.id:43",
        'payload.user.id:"42"',
        "payload.user.id:42.1",
        "payload.user.x:*",
        "payload.user.name:>1",
        "payload.big:9007199254740992",
        "payload.tags.2:red",
        "header.tenant:ac",
        "header.other:*",
        "header.tenant:>1",
        "retried:>3",
        "retried:<3",
        "size:>1kB",
        "due:past",
        "due:<1h",
        "due:>1h",
        "failed:<1h",
        "failed:>1h",
        "failed:<2033-05-18",
        "overdue",
        "running:>1s",
        "result:x",
        "waiting:>1s",
        "timeout nothing",
        "-timeout",
        "unique:*",
        "group:*",
    ],
)
def test_the_task_does_not_match(text: str) -> None:
    """Values near the right ones, and fields that the state does not have."""
    assert not matching(text, task())


def test_literals_of_json_are_words_and_their_quotations_texts() -> None:
    """`true` is a literal, `"true"` a text."""
    one = task(payload=b'{"a": true, "b": null, "c": "true", "d": "42"}')
    assert matching("payload.a:true payload.b:null payload.c:true payload.d:42", one)
    assert matching('payload.c:"true" payload.d:"42"', one)
    assert not matching('payload.a:"true"', one)
    assert not matching("payload.b:*", one)


@pytest.mark.parametrize(
    "payload",
    [
        b"\xff",
        b"[" * 100_000,
        b'{"a": NaN}',
        b'{"a": 1e99999999999999999999}',
        b'{"a": ' + b"1" * 300_000 + b"}",
        b"",
        b"42",
    ],
)
def test_a_payload_that_is_not_json_has_no_parts(payload: bytes) -> None:
    """The search goes on after such a payload."""
    assert not matching("payload.a:*", task(payload=payload))


def test_a_number_of_thousands_of_digits_is_compared_exactly() -> None:
    """Python reads no such integer by itself."""
    digits = b"1" * 5_000
    assert matching("payload.a:>5", task(payload=b'{"a": ' + digits + b"}"))


def test_active_tasks_are_found_by_what_their_servers_say() -> None:
    """Started, deadline and server come from the record of the server."""
    one = task("active", next_process_at=None, is_orphaned=True)
    facts = {
        "started": Instant.from_datetime(NOW - HOUR),
        "deadline": Instant.from_datetime(NOW + timedelta(minutes=15)),
        "server_id": "s1",
    }
    for text in (
        "running:>59m",
        "running:<2h",
        "deadline:80%",
        "deadline:>79.9%",
        "server:s1",
        "server:s*",
        "orphaned",
    ):
        assert matching(text, one, **facts)
    for text in ("running:<59m", "deadline:>80%", "server:s", "overdue"):
        assert not matching(text, one, **facts)
    assert matching("overdue", one, **facts | {"deadline": Instant.from_datetime(NOW - HOUR)})
    assert not matching("running:>1s", one)
    assert matching("server:s2", task("active", server_id="s2"))


def test_the_times_of_a_state_are_those_of_its_tasks() -> None:
    """Archived and completed since, expiring, waiting."""
    error = "poison: its worker crashed 3 times while running it, last on server a:1"
    archived = task("archived", in_state_since=NOW - HOUR, last_error=error)
    assert matching("archived:<2h poison crashes:0", archived)
    assert not matching("poison", task("archived", last_error=f"ValueError: {error}"))
    assert not matching("archived:>2h", archived)
    completed = task("completed", completed_at=NOW - HOUR, expires_at=NOW + HOUR, result=b"sent")
    assert matching("completed:>30m expires:<2h result:sent", completed)
    assert not matching("expires:past", completed)
    pending = task("pending", in_state_since=NOW - HOUR, next_process_at=NOW)
    assert matching("waiting:>59m", pending)
    assert not matching("waiting:>61m", pending)
    scheduled = task("scheduled", next_process_at=NOW - timedelta(microseconds=1))
    assert matching("overdue due:past", scheduled)


def test_a_lock_is_found_by_its_name() -> None:
    """Locks of type and payload by the type and the digest."""
    assert matching("unique:order-7", task(unique_key="asynq:{mail}:x:unique:order-7"))
    assert matching("unique:email:*", task(unique_key="asynq:{mail}:unique:email:0f"))
    assert matching("unique:*", task(unique_key="asynq:{mail}:unique:email:0f"))


def test_poison_tasks_are_found_by_the_begin_of_their_error() -> None:
    """Fails if workers write another error than searches look for."""
    for has_lapsed in (False, True):
        error = poison_error(3, has_lapsed=has_lapsed)
        assert error.startswith(POISON_PREFIX)
        assert matching("poison", task("archived", last_error=error))
        assert matching("poison", task("archived", last_error=error_signature(error))), "as redacted"


@pytest.mark.parametrize(
    ("error", "signature"),
    [
        (
            "poison: its worker crashed once while running it, last on server a:1:4f",
            "poison: its worker crashed <n> times while running it",
        ),
        (
            "poison: its worker crashed 9 times while running it alongside other tasks, last on server b",
            "poison: its worker crashed <n> times while running it alongside other tasks",
        ),
        (
            "poison: its worker crashed 3 times while running it: exit code 137",
            "poison: its worker crashed <n> times while running it: exit code <n>",
        ),
        (
            "poison: its lease ended 30 times without a sign of its worker, last on server worker-7d",
            "poison: its lease ended <n> times without a sign of its worker",
        ),
    ],
)
def test_poison_errors_of_every_server_and_number_are_one_group(error: str, signature: str) -> None:
    """Workers of this and earlier versions have written these errors."""
    assert signature == error_signature(error)
    assert signature == error_signature(signature)
    assert matching("poison", task("archived", last_error=error))


def test_errors_that_only_mention_poison_are_not_grouped_as_such() -> None:
    """A handler may raise them."""
    for error in ("poison: its smell once, last on server a", "ValueError: poison: its worker crashed once"):
        assert not matching("poison", task("archived", last_error=error))
        assert error == error_signature(error)
