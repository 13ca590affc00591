"""Looking through many tasks: bounded, page by page."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

import pytest

from pyasynq._broker.inspecting.reports import error_report, type_report
from pyasynq._broker.inspecting.search import search_tasks
from pyasynq._broker.inspecting.tasks import scan_tasks
from pyasynq._error_signature import error_signature
from pyasynq.errors import InvalidOptionError, QueueNotFoundError, UnknownOptionError
from pyasynq.task import TaskState
from tests.contract.test_inspect_actions import put
from tests.factories import NOW, Tasks, message_bytes
from tests.fix_broker import BlockingPerformer

if TYPE_CHECKING:
    from pyasynq._redis.plan import Plan
    from pyasynq.info import SearchPage, TaskFilters
    from tests.fix_broker import Perform
    from tests.invariants import RedisClient

EVERY_STATE = tuple(TaskState)


def search(
    state: str = "archived",
    *,
    group: str = "",
    cursor: int = 0,
    scan: int = 1_000,
    **filters: Unpack[TaskFilters],
) -> Plan[SearchPage]:
    """Search the queue."""
    return search_tasks("default", state, filters, group=group, cursor=cursor, scan=scan, now=NOW)


def ids(page: SearchPage) -> str:
    """Return the ids that were found, one after another."""
    return "".join(task.id for task in page.tasks)


def test_tasks_are_found_by_type_payload_and_error(perform: Perform, tasks: Tasks) -> None:
    """The whole type, a part of the others; all filters must match."""
    tasks.put(TaskState.ARCHIVED, "a", type="email", payload=b'{"user":42}', error_msg="boom: timeout")
    tasks.put(TaskState.ARCHIVED, "b", type="email:bulk", payload=b'{"user":43}', error_msg="refused")
    tasks.put(TaskState.ARCHIVED, "c", type="image", payload=b"email\xff", error_msg="timeout")
    assert "a" == ids(perform(search(type="email")))
    assert "ab" == ids(perform(search(payload='"user"')))
    assert "c" == ids(perform(search(payload=b"\xff")))
    assert "ac" == ids(perform(search(error="timeout")))
    assert "a" == ids(perform(search(error="timeout", payload="user")))
    assert "abc" == ids(perform(search()))
    assert "" == ids(perform(search(payload="refused")))


def test_texts_are_not_patterns(perform: Perform, tasks: Tasks) -> None:
    """Lua would take `.` and `%` for such."""
    tasks.put(TaskState.ARCHIVED, "a", payload=b"100%.")
    tasks.put(TaskState.ARCHIVED, "b", payload=b"100x,")
    assert "a" == ids(perform(search(payload="00%.")))
    assert "" == ids(perform(search(payload="00.*")))


@pytest.mark.parametrize("state", EVERY_STATE)
def test_every_state_can_be_searched(perform: Perform, tasks: Tasks, state: TaskState) -> None:
    """Aggregating tasks by their group."""
    put(tasks, state, "a", "b")
    group = "g" if state is TaskState.AGGREGATING else ""
    assert "ab" == ids(perform(search(state, group=group, type="email:deliver")))


def test_tasks_are_found_by_age(perform: Perform, tasks: Tasks, redis_client: RedisClient) -> None:
    """How long they have been in their state, as far as Redis tells."""
    for task_id, age in (("a", 30), ("b", 20), ("c", 10)):
        then = NOW.seconds - age
        tasks.put(TaskState.ARCHIVED, task_id, score=then)
        tasks.put(TaskState.RETRY, f"r{task_id}", last_failed_at=then)
        tasks.put(TaskState.COMPLETED, f"f{task_id}", score=then + 60, completed_at=then, retention=60)
        tasks.put(TaskState.AGGREGATING, f"g{task_id}", score=then, group="g")
        tasks.pending(f"p{task_id}")
        redis_client.hset(tasks.keys.task(f"p{task_id}"), "pending_since", f"{then}000000000")
    for state, mark in (("archived", ""), ("retry", "r"), ("completed", "f"), ("pending", "p")):
        assert f"{mark}a{mark}b" == ids(perform(search(state, older_than=20)))
        assert f"{mark}b{mark}c" == ids(perform(search(state, newer_than=timedelta(seconds=20.5))))
        assert f"{mark}b" == ids(perform(search(state, newer_than=21, older_than=15)))
    assert "gagb" == ids(perform(search("aggregating", group="g", older_than=15)))


def test_a_task_of_unknown_age_is_neither_old_nor_new(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """Go leaves the time of a task out that was run by hand."""
    tasks.pending("a")
    redis_client.hdel(tasks.keys.task("a"), "pending_since")
    assert "" == ids(perform(search("pending", older_than=1)))
    assert "" == ids(perform(search("pending", newer_than=1)))
    tasks.client.hset(tasks.keys.task("a"), "pending_since", "1")


@pytest.mark.parametrize("state", ["active", "scheduled"])
@pytest.mark.parametrize("name", ["older_than", "newer_than"])
def test_ages_that_redis_does_not_tell_are_refused(
    perform: Perform, tasks: Tasks, state: str, name: str
) -> None:
    """An empty answer would be taken for "none"."""
    tasks.pending("a")
    filters: Any = {name: 1}
    with pytest.raises(InvalidOptionError, match=f"^{name}=1: Redis does not tell"):
        perform(search(state, **filters))


def test_a_search_is_bounded_and_goes_on(perform: Perform, tasks: Tasks) -> None:
    """Each call looks at this many tasks, with any number of matches."""
    for number in range(5):
        tasks.put(
            TaskState.ARCHIVED, f"{number}", score=NOW.seconds + number, type="t" if number % 2 else "u"
        )
    first = perform(search(type="t", scan=2))
    second = perform(search(type="t", scan=2, cursor=first.cursor or 0))
    third = perform(search(type="t", scan=2, cursor=second.cursor or 0))
    assert [("1", 2, 2), ("3", 4, 2), ("", None, 1)] == [
        (ids(page), page.cursor, page.scanned) for page in (first, second, third)
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        {"scan": 0},
        {"cursor": -1},
        {"state": "nope"},
        {"state": "aggregating"},
        {"group": "g"},
        {"scan": True},
    ],
)
def test_what_a_search_cannot_be_asked_is_refused(
    perform: Perform, tasks: Tasks, arguments: dict[str, Any]
) -> None:
    """The error names the argument."""
    tasks.pending("a")
    with pytest.raises(InvalidOptionError):
        perform(search(**arguments))


def test_a_misspelt_filter_is_refused(perform: Perform) -> None:
    """The error suggests the right name."""
    with pytest.raises(UnknownOptionError, match="did you mean 'payload'"):
        perform(search(paylod="x"))  # type: ignore[call-arg]


def test_searches_need_a_queue(perform: Perform) -> None:
    """A misspelt name must not look like an empty queue."""
    for plan in (
        search(),
        error_report("default", "retry", scan=1, since=None, until=None, now=NOW),
        type_report("default", scan=1, since=None, until=None),
    ):
        with pytest.raises(QueueNotFoundError):
            perform(plan)


def test_one_reply_stays_within_1_mb(redis_client: RedisClient, tasks: Tasks) -> None:
    """Message, result and traceback count; a larger task comes alone. Several calls make one page."""
    tasks.pending("a", "b", "c", payload=bytes(400_000))
    tasks.put(TaskState.PENDING, "d", extra={"result": bytes(500_000)})
    tasks.put(TaskState.PENDING, "e", extra={"x:trace": bytes(1_500_000)})
    perform = BlockingPerformer(redis_client)
    found = perform(scan_tasks("default", TaskState.PENDING, 0, 30))
    assert ["a", "b", "c", "d", "e"] == [record.id for record in found.records]
    assert (5, 3) == (found.positions, len(perform.calls))


def test_a_reply_may_hold_exactly_1_mb(redis_client: RedisClient, tasks: Tasks) -> None:
    """One byte more is for the next call."""
    size = len(message_bytes("a", payload=bytes(499_000)))
    tasks.pending("a", "b", payload=bytes(499_000))
    for more, calls in ((0, 1), (1, 2)):
        redis_client.hset(tasks.keys.task("b"), "result", bytes(1_000_000 - 2 * size + more))
        perform = BlockingPerformer(redis_client)
        perform(scan_tasks("default", TaskState.PENDING, 0, 30))
        assert calls == len(perform.calls)


def test_the_last_reply_is_known_to_be_the_last(redis_client: RedisClient, tasks: Tasks) -> None:
    """No call is made in vain; a full page may be followed by more."""
    tasks.pending(*"abcd")
    for stop, positions in ((10, 4), (4, 4), (3, 3)):
        perform = BlockingPerformer(redis_client)
        found = perform(scan_tasks("default", TaskState.PENDING, 0, stop))
        assert (positions, 1) == (found.positions, len(perform.calls))


def test_more_than_250_positions_are_looked_at_in_several_calls(
    redis_client: RedisClient, tasks: Tasks
) -> None:
    """Each call looks at few positions, so none of them takes long."""
    tasks.put(TaskState.ARCHIVED, *(f"{number:04}" for number in range(1_200)))
    perform = BlockingPerformer(redis_client)
    page = perform(search(scan=5_000))
    assert (1_200, 1_200, None) == (len(page.tasks), page.scanned, page.cursor)
    assert 6 == len(perform.calls)


@pytest.mark.usefixtures("damage_allowed")
def test_tasks_that_cannot_be_read_are_left_out(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """The message is unreadable, and the state is unknown."""
    tasks.put(TaskState.ARCHIVED, "a", "b", "c")
    redis_client.hset(tasks.keys.task("a"), "msg", b"\xff")
    redis_client.hset(tasks.keys.task("b"), "state", "frozen")
    page = perform(search())
    assert ("c", 3) == (ids(page), page.scanned)


ERRORS = [
    ("user 42 not found", "user <n> not found"),
    ("took 3.14s of 10.0.0.7:6379", "took <n>s of <n>:<n>"),
    ("no task 6ba7b810-9dad-11d1-80b4-00c04fd430c8", "no task <id>"),
    ("KeyError: 'name'", "KeyError: <text>"),
    ('invalid "a b" and "c"', "invalid <text> and <text>"),
    ("can't and won't", "can't and won't"),
    ("object at 0x7f3a and deadbeef01", "object at <hex> and <hex>"),
    ("defaced feedback", "defaced feedback"),
    ("  first\nsecond", "first"),
    ("x" * 300, "x" * 200),
]


@pytest.mark.parametrize(("error", "signature"), ERRORS)
def test_errors_that_differ_in_details_are_alike(error: str, signature: str) -> None:
    """Numbers, ids, addresses and quotations; words that look like hex are words."""
    assert signature == error_signature(error)


def test_errors_are_grouped_by_what_is_alike(perform: Perform, tasks: Tasks) -> None:
    """The most frequent first; the sample is the latest."""
    for number, kind in enumerate(("email", "email", "image")):
        tasks.put(
            TaskState.ARCHIVED,
            f"a{number}",
            type=kind,
            error_msg=f"user {number} not found",
            last_failed_at=NOW.seconds - 100 + number,
            score=NOW.seconds,
        )
    tasks.put(TaskState.ARCHIVED, "b", error_msg="refused")
    tasks.put(TaskState.ARCHIVED, "c", error_msg="")
    report = perform(error_report("default", "archived", scan=100, since=None, until=None, now=NOW))
    first, second = report.groups
    assert ("user <n> not found", 3, {"email": 2, "image": 1}) == (first.signature, first.count, first.types)
    assert ("a2", datetime.fromtimestamp(NOW.seconds - 98, UTC)) == (first.sample.id, first.latest)
    assert ("refused", 1, None) == (second.signature, second.count, second.latest)
    assert (5, True) == (report.scanned, report.is_complete)


def test_a_report_of_errors_is_bounded(perform: Perform, tasks: Tasks) -> None:
    """It says when it has not seen all, and is only for states with errors."""
    tasks.put(TaskState.RETRY, *"abc", error_msg="x")
    report = perform(error_report("default", "retry", scan=2, since=None, until=None, now=NOW))
    assert (2, 2, False) == (report.scanned, report.groups[0].count, report.is_complete)
    for state, scan in (("pending", 1), ("retry", 0)):
        with pytest.raises(InvalidOptionError):
            perform(error_report("default", state, scan=scan, since=None, until=None, now=NOW))


def test_types_are_counted_by_state(perform: Perform, tasks: Tasks) -> None:
    """Groups included; the most frequent first."""
    tasks.pending("a", type="email")
    tasks.put(TaskState.RETRY, "b", type="email", retried=2)
    tasks.put(TaskState.AGGREGATING, "c", "d", type="image", group="g")
    tasks.put(TaskState.AGGREGATING, "e", type="image", group="h")
    report = perform(type_report("default", scan=10, since=None, until=None))
    image, email = report.types
    assert ("image", {TaskState.AGGREGATING: 3}, 3, 0) == (
        image.type,
        image.counts,
        image.total,
        image.retried,
    )
    assert ({TaskState.PENDING: 1, TaskState.RETRY: 1}, 2) == (email.counts, email.retried)
    assert (5, True) == (report.scanned, report.is_complete)
    assert not perform(type_report("default", scan=1, since=None, until=None)).is_complete
    with pytest.raises(InvalidOptionError):
        perform(type_report("default", scan=0, since=None, until=None))


def test_the_bytes_of_a_message_hold_its_texts_as_they_are() -> None:
    """Redis looks for them there."""
    assert all(
        text in message_bytes("a", type="t:é", payload=b"\x00p", error_msg="ü")
        for text in ("t:é".encode(), b"\x00p", "ü".encode())
    )


def put_archived(tasks: Tasks, number: int) -> None:
    """Archive tasks one second after another; the error of each has its own letter."""
    for at in range(number):
        error = f"error {chr(ord('a') + at)}"
        tasks.put(TaskState.ARCHIVED, f"t{at}", error_msg=error, score=NOW.seconds - number + at)


def ago(seconds: int) -> datetime:
    """Return a time in the past."""
    return datetime.fromtimestamp(NOW.seconds - seconds, UTC)


def test_a_report_of_errors_begins_with_the_newest(perform: Perform, tasks: Tasks) -> None:
    """It tells from when the tasks are that it looked at, and how many there were."""
    put_archived(tasks, 10)
    report = perform(error_report("default", "archived", scan=3, since=None, until=None, now=NOW))
    assert ["error h", "error i", "error j"] == [group.signature for group in report.groups]
    assert (3, 10, False) == (report.scanned, report.total, report.is_complete)
    assert (ago(3), ago(1)) == (report.since, report.until)


@pytest.mark.parametrize(
    ("since", "until", "found"),
    [(4, None, "ghij"), (None, 8, "abc"), (7, 5, "def"), (100, 50, ""), (0, None, "")],
)
def test_a_report_of_errors_takes_a_time_range(
    perform: Perform, tasks: Tasks, since: int | None, until: int | None, found: str
) -> None:
    """Both ends count; Redis finds it, so nothing else is looked at."""
    put_archived(tasks, 10)
    first, last = (None if seconds is None else ago(seconds) for seconds in (since, until))
    report = perform(error_report("default", "archived", scan=100, since=first, until=last, now=NOW))
    assert [f"error {letter}" for letter in found] == [group.signature for group in report.groups]
    assert (len(found), len(found), True) == (report.scanned, report.total, report.is_complete)


def test_errors_of_retry_tasks_are_chosen_by_their_last_failure(perform: Perform, tasks: Tasks) -> None:
    """Their scores are the times they are due, so all of them are looked at."""
    for at, failed in ((100, 50), (200, 5)):
        tasks.put(
            TaskState.RETRY,
            f"t{at}",
            error_msg=f"failed {chr(96 + failed)}",
            last_failed_at=NOW.seconds - failed,
            score=NOW.seconds + at,
        )
    report = perform(error_report("default", "retry", scan=9, since=ago(10), until=None, now=NOW))
    [group] = report.groups
    assert ("failed e", 2, ago(5), ago(5)) == (
        group.signature,
        report.scanned,
        group.earliest,
        group.latest,
    )


def test_tasks_without_an_error_are_told(perform: Perform, tasks: Tasks) -> None:
    """Such as those that were archived by hand."""
    tasks.put(TaskState.ARCHIVED, "a", "b", error_msg="")
    report = perform(error_report("default", "archived", scan=9, since=None, until=None, now=NOW))
    assert ((), 2, 2) == (report.groups, report.without_error, report.scanned)


def test_a_report_of_types_takes_a_time_range(perform: Perform, tasks: Tasks) -> None:
    """States whose tasks have no time are left out, and told."""
    tasks.active("x")
    tasks.put(TaskState.SCHEDULED, "y")
    put_archived(tasks, 10)
    report = perform(type_report("default", scan=100, since=ago(4), until=ago(2)))
    assert [{TaskState.ARCHIVED: 3}] == [one.counts for one in report.types]
    assert {TaskState.ACTIVE, TaskState.SCHEDULED} == set(report.undated)
    assert () == perform(type_report("default", scan=9, since=None, until=None)).undated


@pytest.mark.parametrize("report", [partial(error_report, state="archived", now=NOW), type_report])
def test_a_time_range_is_checked(report: Any) -> None:
    """Before anything is asked."""
    for since, until in ((datetime(2026, 1, 1), None), (ago(1), ago(2))):  # noqa: DTZ001 - on purpose
        with pytest.raises(InvalidOptionError, match=r"^(since|until)="):
            next(report("default", scan=1, since=since, until=until))


def test_the_groups_of_a_report_of_types_are_one_state(redis_client: RedisClient, tasks: Tasks) -> None:
    """However many there are: a call for each of hundreds of thousands would take minutes."""
    for number in range(30):
        tasks.put(TaskState.AGGREGATING, f"t{number}", group=f"g{number}")
    performer = BlockingPerformer(redis_client)
    report = performer(type_report("default", scan=5, since=None, until=None))
    assert (5, 30, False) == (report.scanned, report.total, report.is_complete)
    assert len(performer.calls) < 30
