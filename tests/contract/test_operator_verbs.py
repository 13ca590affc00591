"""Views and verbs of the operator that ask more than one thing, or none that a door has as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyasynq._broker.servers import write_server_state
from pyasynq._wire.messages import ServerInfo, decode_task_message
from pyasynq.doctor import FindingKind
from pyasynq.errors import InvalidOptionError, QueueNotFoundError, TaskNotFoundError, WaitTimeoutError
from pyasynq.limits import QueueLimits
from pyasynq.operations import MASK, Examination, OperationOptions, Targets, User
from pyasynq.operations import sync as blocking
from pyasynq.task import Task, TaskEnd, TaskState
from tests.contract.test_operator_walk import _Clock
from tests.factories import NOW, Tasks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from tests.fix_broker import Perform
    from tests.invariants import RedisClient

ADMIN = User.with_role("root", "admin")


@pytest.fixture
def operator(redis_url: str, redis_client: RedisClient) -> Iterator[blocking.Operator]:
    """An operator for an admin."""
    with blocking.Operator(redis_url, ADMIN, clock=_Clock()) as one:
        yield one


def damage(client: RedisClient, queue: str) -> Tasks:
    """Put an id without a task into a queue."""
    tasks = Tasks(client, queue)
    tasks.pending("sound")
    client.rpush(tasks.keys.pending, "ghost")
    return tasks


def ghosts(examination: Examination) -> set[str]:
    """Return the queues in which ids without a task were found."""
    return {one.queue for one in examination.findings if one.kind is FindingKind.GHOST}


def test_damage_is_found_and_repaired_where_the_user_may(
    operator: blocking.Operator, redis_client: RedisClient
) -> None:
    """An examination changes nothing and tells what the repair would do; the audit has the numbers."""
    mine, theirs = damage(redis_client, "team-mail"), damage(redis_client, "payments")
    assert {"team-mail", "payments"} == ghosts(operator.examine(pause=0))
    assert ["ghost", "sound"] == mine.ids("pending")
    mira = operator.for_user(User.with_role("mira", "admin", queues="team-*"))
    assert {"team-mail"} == ghosts(mira.examine(pause=0))
    repaired = mira.repair(pause=0, reason="after the crash")
    [ghost] = [one for one in repaired.findings if one.kind is FindingKind.GHOST]
    assert (("ghost",), True) == (ghost.repaired, ghost.is_repaired)
    assert (["sound"], ["ghost", "sound"]) == (mine.ids("pending"), theirs.ids("pending"))
    [entry] = operator.audit().entries
    assert ("repair", ("team-mail",)) == (entry.verb, entry.queues)
    assert entry.counts["repaired"] >= 1
    operator.repair(pause=0)


def test_only_the_kinds_that_are_asked_for_are_repaired(
    operator: blocking.Operator, redis_client: RedisClient
) -> None:
    """A kind that there is not is an error, with the nearest one."""
    tasks = damage(redis_client, "default")
    assert () == operator.repair(["default"], [FindingKind.ORPHAN], pause=0).findings
    assert ["ghost", "sound"] == tasks.ids("pending")
    with pytest.raises(InvalidOptionError, match="ghost"):
        operator.repair(kinds=["gost"])
    operator.repair(["default"], ["ghost"], pause=0)
    assert ["sound"] == tasks.ids("pending")


def test_a_user_who_sees_no_queue_examines_nothing(
    operator: blocking.Operator, redis_client: RedisClient
) -> None:
    """Not all of Redis, as a doctor without queues would."""
    damage(redis_client, "payments")
    mira = operator.for_user(User.with_role("mira", "admin", queues="team-*"))
    assert Examination(()) == mira.examine(pause=0) == mira.repair(pause=0)
    operator.repair(pause=0)


def test_limits_are_told_with_what_they_meet(
    operator: blocking.Operator, redis_client: RedisClient, perform: Perform
) -> None:
    """What is stored, what each server asks for, and which servers ignore limits."""
    tasks = Tasks(redis_client, "default")
    tasks.pending("p1", "p2")
    tasks.active("a")
    operator.set_queue_limits("default", max_run=3)
    for server_id, engine in {"py": "pyasynq", "go": ""}.items():
        info = ServerInfo(
            host="h",
            pid=1,
            server_id=server_id,
            concurrency=1,
            queues={"default": 1},
            strict_priority=False,
            active_worker_count=0,
            status="active",
            start_time=NOW.to_datetime(),
            engine=engine,
        )
        perform(write_server_state(info, [], now=NOW))
    report = operator.queue_limits("default")
    assert (QueueLimits(max_run=3), 1, 2) == (report.stored, report.active, report.pending)
    assert ({}, ("go",)) == (report.asked, report.ignored_by)
    with pytest.raises(QueueNotFoundError):
        operator.queue_limits("nope")


def test_the_end_of_a_task_is_waited_for(operator: blocking.Operator, tasks: Tasks) -> None:
    """Its error comes redacted, as everywhere."""
    tasks.put(TaskState.ARCHIVED, "z", error_msg="no login: password=hunter2")
    tasks.pending("p")
    ended = operator.wait_task("default", "z", 0)
    assert ended.info is not None
    assert (TaskEnd.ARCHIVED, f"no login: password={MASK}") == (ended.end, ended.info.last_error)
    with pytest.raises(WaitTimeoutError):
        operator.wait_task("default", "p", 0)


def test_a_copy_has_an_id_of_its_own_and_the_payload_that_is_given(
    operator: blocking.Operator, tasks: Tasks
) -> None:
    """It can be made of a task in any state, more than once; the result tells no secret."""
    tasks.active("a", payload=b'{"password":"x"}', headers={"k": "v"}, retry=7)
    first = operator.enqueue_copy("default", "a")
    second = operator.enqueue_copy("default", "a", b'{"password":"y"}')
    assert f'{{"password":"{MASK}"}}'.encode() == first.payload
    assert sorted([first.id, second.id]) == sorted(tasks.ids("pending"))
    copies = [decode_task_message(tasks.fields(one.id)["msg"]) for one in (first, second)]
    assert [b'{"password":"x"}', b'{"password":"y"}'] == [copy.payload for copy in copies]
    assert [({"k": "v"}, 7)] * 2 == [(dict(copy.headers), copy.retry) for copy in copies]
    with pytest.raises(InvalidOptionError, match="contains"):
        operator.enqueue_copy("default", "a", first.payload)
    with pytest.raises(TaskNotFoundError):
        operator.enqueue_copy("default", "nope")


def test_a_mask_is_not_written_in_place_of_a_secret(operator: blocking.Operator, tasks: Tasks) -> None:
    """A form that was filled from what is shown would destroy payloads and headers."""
    tasks.put(TaskState.ARCHIVED, "z")
    masked = f"Bearer {MASK}"
    with pytest.raises(InvalidOptionError, match="contains"):
        operator.enqueue("default", Task("t", b"{}", headers={"authorization": masked}))
    with pytest.raises(InvalidOptionError, match="contains"):
        operator.start_operation(
            "edit", Targets({"default": ["z"]}), OperationOptions(headers={"authorization": masked})
        )
    assert ([], ["z"]) == (tasks.ids("pending"), tasks.ids("archived"))


@pytest.mark.parametrize(
    ("since", "until", "expected"),
    [
        (NOW.plus(-90).to_datetime(), None, 1),
        (None, NOW.plus(-90).to_datetime(), 1),
        (NOW.plus(-300).to_datetime(), NOW.to_datetime(), 2),
        (NOW.plus(-10).to_datetime(), None, 0),
    ],
)
def test_reports_have_a_range(
    operator: blocking.Operator,
    tasks: Tasks,
    since: datetime | None,
    until: datetime | None,
    expected: int,
) -> None:
    """Times between which tasks were archived."""
    for age in (60, 120):
        tasks.put(TaskState.ARCHIVED, f"z{age}", score=NOW.seconds - age, error_msg="why")
    report = operator.errors("default", since=since, until=until)
    assert expected == sum(group.count for group in report.groups)
    types = operator.types("default", since=since, until=until)
    assert expected == sum(one.total for one in types.types)


def test_reports_of_many_queues_are_those_of_each(
    operator: blocking.Operator, redis_client: RedisClient
) -> None:
    """Each looks at as many tasks; without names, all queues that the user sees are reported."""
    for number, queue in enumerate(("team-a", "team-b", "payments"), 1):
        tasks = Tasks(redis_client, queue)
        tasks.pending("waits")
        for task_id in range(number):
            tasks.put(TaskState.ARCHIVED, f"z{task_id}", error_msg=f"why of {queue}")
    each = {name: operator.errors(name, scan=2) for name in ("payments", "team-a", "team-b")}

    assert each == operator.error_reports(scan=2)
    assert [True, True, False] == [each[name].is_complete for name in ("team-a", "team-b", "payments")]
    mira = operator.for_user(User.with_role("mira", "viewer", queues="team-*"))
    assert ["team-a", "team-b"] == list(mira.error_reports())
    for call in (mira.error_reports, operator.error_reports):
        with pytest.raises(QueueNotFoundError):
            call(["team-a", "payments" if call is mira.error_reports else "nope"])


def test_tasks_of_a_state_are_counted_in_many_queues(
    operator: blocking.Operator, redis_client: RedisClient
) -> None:
    """A queue whose key has another type has no number, and hides no other queue."""
    for queue in ("team-a", "team-b", "payments"):
        tasks = Tasks(redis_client, queue)
        tasks.pending("waits")
        tasks.put(TaskState.ARCHIVED, "a", "b")
    redis_client.delete("asynq:{team-b}:archived", "asynq:{team-b}:t:a", "asynq:{team-b}:t:b")
    redis_client.set("asynq:{team-b}:archived", "wrong")

    assert {"payments": 2, "team-a": 2, "team-b": None} == operator.state_counts("archived")
    redis_client.delete("asynq:{team-b}:archived")
    mira = operator.for_user(User.with_role("mira", "viewer", queues="team-*"))
    assert {"team-a": 1, "team-b": 1} == mira.state_counts(TaskState.PENDING)
