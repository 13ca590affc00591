"""Operations on many tasks from preview to undo, by one process or by several."""

from __future__ import annotations

import json
import random
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._wire.keys import OPERATIONS_KEY, operation_key
from pyasynq._wire.messages import decode_task_message
from pyasynq.errors import (
    InvalidOptionError,
    OperationNotFoundError,
    PermissionDeniedError,
    QueueNotFoundError,
    RedisUnavailableError,
)
from pyasynq.operations import (
    Act,
    AnyPermission,
    AuditFilters,
    OperationInfo,
    OperationOptions,
    OperationState,
    Permission,
    Redactor,
    Targets,
    User,
)
from pyasynq.operations import sync as blocking
from pyasynq.operations.acting import StepPace
from pyasynq.operations.query import QueryError
from pyasynq.operations.sync import _acts, _runner, operations
from pyasynq.task import TaskState
from tests.contract.test_operator_walk import _Clock
from tests.factories import NOW, Tasks
from tests.fix_proxy import Cut, Proxy
from tests.snapshots import snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyasynq.task import TaskInfo
    from tests.invariants import RedisClient

ADMIN = User.with_role("root", "admin")
LOCK = "asynq:{default}:unique:t:x"


@pytest.fixture
def operator(redis_url: str, redis_client: RedisClient) -> Iterator[blocking.Operator]:
    """An operator for an admin."""
    with blocking.Operator(redis_url, ADMIN, clock=_Clock()) as one:
        yield one


def run(
    operator: blocking.Operator, act: Act | str, *ids: str, queue: str = "default", **options: Any
) -> OperationInfo:
    """Start and run an operation."""
    targets = Targets({queue: ids})
    started = operator.start_operation(
        act, targets, OperationOptions(**options), reason="test", confirm=len(targets)
    )
    return operator.run_operation(started.operation)


@pytest.mark.parametrize("cut", list(Cut))
def test_a_start_with_a_key_survives_a_broken_connection(
    proxy: Proxy, tasks: Tasks, redis_client: RedisClient, cut: Cut
) -> None:
    """The second run of the script finds what the first one has written, and the start goes on."""
    tasks.pending("a", "b")
    with blocking.Operator(proxy.url, ADMIN) as own:
        proxy.cut(cut, containing=b'"process_at"')
        started = own.start_operation("delete", Targets({"default": ("a", "b")}), reason="old", key="clean")
        proxy.wait(lambda proxy: proxy.cuts == 1)
        ended = own.run_operation(started.operation)

    assert (OperationState.DONE, 2) == (ended.state, ended.done)
    assert [started.operation.encode()] == redis_client.zrange(OPERATIONS_KEY, 0, -1)


def test_of_two_starts_with_one_key_the_first_wins(
    operator: blocking.Operator, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one came between its look and its write; it starts nothing, and says what is there."""
    tasks.pending("a", "b")
    targets = Targets({"default": ("a", "b")})
    write = operations.create_operation  # type: ignore[attr-defined]

    def write_after_another(*args: Any, **named: Any) -> Any:
        monkeypatch.setattr(operations, "create_operation", write)
        operator.start_operation("delete", targets, reason="the first", key="clean")
        return write(*args, **named)

    monkeypatch.setattr(operations, "create_operation", write_after_another)
    second = operator.start_operation("delete", targets, reason="the second", key="clean")

    assert "the first" == second.reason
    assert [second] == operator.operations()


def tasks_only(client: RedisClient) -> dict[str, Any]:
    """Return the database without what operations keep."""
    return {key: value for key, value in snapshot(client).items() if "x:" not in key}


def test_a_preview_says_what_would_happen_and_changes_nothing(
    operator: blocking.Operator, tasks: Tasks, redis_client: RedisClient
) -> None:
    """Counts by queue, type and state, what is left out, samples, and whether it can be undone."""
    tasks.put(TaskState.ARCHIVED, *(f"z{number}" for number in range(12)), type="mail")
    tasks.active("a")
    before = snapshot(redis_client)
    ids = [*(f"z{number}" for number in range(12)), "a", "nope"]
    preview = operator.preview_operation("delete", Targets({"default": ids}))
    assert (12, {("default", "mail", "archived"): 12}) == (preview.total, preview.counts)
    assert {"active": 1, "missing": 1} == preview.left_out
    assert [f"z{number}" for number in range(10)] == [task.id for task in preview.samples]
    assert (True, True, False) == (preview.can_undo, preview.needs_reason, preview.needs_number)
    assert "can be undone until 2033-05-19 03:33 UTC, frees 0.0 KB then" == preview.undo
    assert before == snapshot(redis_client)
    no_undo = operator.preview_operation("delete", Targets({"default": ids}), OperationOptions(undo=False))
    assert (False, "cannot be undone, frees 0.0 KB at once") == (no_undo.can_undo, no_undo.undo)


def test_each_act_does_what_its_name_says(operator: blocking.Operator, tasks: Tasks) -> None:
    """Counts and reasons are exact."""
    tasks.put(TaskState.RETRY, "r1", "r2", "r3", "r4", "r5", error_msg="why")
    tasks.active("a")
    ran = run(operator, "run", "r1", "a", "nope")
    assert (OperationState.DONE, 1, 2) == (ran.state, ran.done, ran.skipped)
    assert (("default", "a", "active"), ("default", "nope", "missing")) == ran.refused
    assert 1 == run(operator, "archive", "r2").done
    assert 1 == run(operator, "reschedule", "r3", process_at=NOW.plus(60).to_datetime()).done
    assert 1 == run(operator, "delete", "r4").done
    assert 1 == run(operator, "delete", "r5", undo=False).done
    cancelled = run(operator, "cancel", "a", "r1", "nope")
    assert (1, (("default", "r1", "pending"), ("default", "nope", "missing"))) == (
        cancelled.done,
        cancelled.refused,
    )
    assert (["r1"], ["r2"], {"r3": NOW.ceiling + 60}) == (
        tasks.ids("pending"),
        tasks.ids("archived"),
        tasks.scores("retry"),
    )
    assert "a" in {key.decode() for key in tasks.client.hkeys(tasks.keys.cancellations)}


def test_rescheduling_spreads_tasks_evenly(operator: blocking.Operator, tasks: Tasks) -> None:
    """The tasks keep the order of their ids, and cover the whole span."""
    tasks.put(TaskState.RETRY, *"abcd", error_msg="why")
    run(operator, "reschedule", *"abcd", process_at=NOW.to_datetime(), spread=timedelta(seconds=40))
    first = NOW.ceiling
    assert {"a": first, "b": first + 10, "c": first + 20, "d": first + 30} == tasks.scores("retry")


def test_running_spreads_tasks_over_a_time_from_now(operator: blocking.Operator, tasks: Tasks) -> None:
    """They are due one after another; a task whose time cannot be set is left out, in the preview too."""
    tasks.put(TaskState.ARCHIVED, "a", "b")
    tasks.put(TaskState.RETRY, "c", "d", error_msg="why")
    tasks.put(TaskState.COMPLETED, "e", completed_at=NOW.seconds - 60, retention=60)
    options = OperationOptions(spread=timedelta(seconds=50))
    preview = operator.preview_operation("run", Targets({"default": [*"abcde"]}), options)
    assert (4, {"completed": 1}) == (preview.total, preview.left_out)
    ran = run(operator, "run", *"abcde", spread=timedelta(seconds=50))
    assert (4, (("default", "e", "completed"),)) == (ran.done, ran.refused)
    first = NOW.ceiling
    assert {"a": first, "b": first + 10} == tasks.scores("scheduled")
    assert {"c": first + 20, "d": first + 30} == tasks.scores("retry")
    backwards = OperationOptions(spread=-options.spread)
    with pytest.raises(InvalidOptionError, match="must not be negative"):
        operator.preview_operation("run", Targets({"default": ["a"]}), backwards)


def test_a_move_needs_both_queues_and_tells_both(
    operator: blocking.Operator, redis_client: RedisClient, tasks: Tasks
) -> None:
    """Such an operation is hidden from users who do not see one of them; tasks there already stay."""
    tasks.put(TaskState.ARCHIVED, "z")
    Tasks(redis_client, "slow").put(TaskState.ARCHIVED, "y")
    targets, options = Targets({"default": ["z"]}), OperationOptions(queue="slow")
    for queues in ("default", "slow"):
        mira = operator.for_user(User.with_role("mira", "operator", queues=queues))
        with pytest.raises(QueueNotFoundError):
            mira.start_operation("move", targets, options)
    may_see_only: dict[AnyPermission, tuple[str, ...]] = {
        Permission.TASKS_VIEW: ("*",),
        Permission.OPERATIONS_RUN: ("*",),
        Permission.TASKS_EDIT: ("default",),
    }
    with pytest.raises(PermissionDeniedError, match=r"tasks\.edit"):
        operator.for_user(User("leo", may_see_only)).start_operation("move", targets, options)
    started = operator.start_operation("move", Targets(query="state:archived"), options)
    moved = operator.run_operation(started.operation)
    assert (1, "slow", ("default",)) == (moved.done, moved.target, moved.queues)
    [entry] = operator.audit(AuditFilters(verb="start_operation")).entries
    assert (("default", "slow"), "act=move") == (entry.queues, f"act={entry.details['act']}")
    assert {"y", "z"} == set(Tasks(redis_client, "slow").ids("archived"))
    mira = operator.for_user(User.with_role("mira", "operator", queues="default"))
    assert [] == mira.operations()
    with pytest.raises(OperationNotFoundError):
        mira.operation(moved.operation)
    with pytest.raises(InvalidOptionError):
        operator.preview_operation("move", targets)


def test_a_move_by_a_query_keeps_the_order_of_pending_tasks(
    operator: blocking.Operator, redis_client: RedisClient, tasks: Tasks
) -> None:
    """The oldest goes first, also in the other queue."""
    ids = [f"p{number:03}" for number in range(120)]
    tasks.pending(*ids)
    started = operator.start_operation(
        "move", Targets(query="state:pending"), OperationOptions(queue="other"), reason="r"
    )
    before = tasks.ids("pending")
    assert 120 == operator.run_operation(started.operation).done
    assert before == Tasks(redis_client, "other").ids("pending")


def test_an_edit_changes_options_and_nothing_else(operator: blocking.Operator, tasks: Tasks) -> None:
    """Headers are added; a task that waits in the queue is left out."""
    tasks.put(TaskState.ARCHIVED, "z", headers={"a": "1"}, payload=b"p", retried=5)
    tasks.pending("p")
    edited = run(
        operator, "edit", "z", "p", "nope", max_retry=3, timeout=timedelta(seconds=1.5), headers={"b": "2"}
    )
    assert (1, {"pending", "missing"}) == (edited.done, {reason for *_, reason in edited.refused})
    message = decode_task_message(tasks.fields("z")["msg"])
    assert (5, 2, {"a": "1", "b": "2"}) == (message.retry, message.timeout, dict(message.headers))
    assert (b"p", 5) == (message.payload, message.retried)


def test_a_copy_is_enqueued_once(operator: blocking.Operator, tasks: Tasks) -> None:
    """Whatever happened to the original; its id follows from operation and task."""
    tasks.put(TaskState.ARCHIVED, "z", payload=b'{"password":"x"}', headers={"a": "1"}, retry=7)
    copied = run(operator, "enqueue_again", "z", "nope")
    assert (1, 1) == (copied.done, copied.skipped)
    [copy] = tasks.ids("pending")
    message = decode_task_message(tasks.fields(copy)["msg"])
    assert (b'{"password":"x"}', {"a": "1"}, 7) == (message.payload, dict(message.headers), message.retry)
    assert ["z"] == tasks.ids("archived")


def test_a_deletion_is_undone_byte_for_byte_by_another_process(
    operator: blocking.Operator, redis_url: str, tasks: Tasks, redis_client: RedisClient
) -> None:
    """The undo covers tasks of two queues, and a second undo changes nothing."""
    other = Tasks(redis_client, "other")
    tasks.pending("p1", "p2", "p3", headers={"a": "b"})
    tasks.put(TaskState.RETRY, "r", unique_key=LOCK, score=NOW.seconds + 9, error_msg="why")
    other.put(TaskState.ARCHIVED, "z")
    before = tasks_only(redis_client)
    targets = Targets({"default": ["p2", "r", "p1"], "other": ["z"]})
    started = operator.start_operation("delete", targets, reason="gone bad")
    deleted = operator.run_operation(started.operation)
    assert (4, 4, NOW.plus(86_400).to_datetime()) == (deleted.done, deleted.undoable, deleted.undo_until)
    with blocking.Operator(redis_url, User.with_role("mira", "operator"), clock=_Clock()) as another:
        undoing = another.undo_operation(started.operation, reason="was right after all")
        assert (Act.UNDO, 4, started.operation) == (undoing.act, undoing.total, undoing.undoes)
        undone = another.run_operation(undoing.operation)
        assert (OperationState.DONE, 4, 0) == (undone.state, undone.done, undone.skipped)
        assert before == tasks_only(redis_client)
        again = another.undo_operation(started.operation)
        assert 0 == another.run_operation(again.operation).done
    assert before == tasks_only(redis_client)


@pytest.mark.parametrize("act", ["delete", "run", "archive", "reschedule", "edit", "move", "enqueue_again"])
@pytest.mark.parametrize("step", [0, 1, 4])
@pytest.mark.parametrize("query", ["", "state:retry"])
def test_a_process_that_dies_between_a_step_and_its_note_costs_no_count(
    operator: blocking.Operator,
    redis_url: str,
    tasks: Tasks,
    redis_client: RedisClient,
    monkeypatch: pytest.MonkeyPatch,
    act: str,
    step: int,
    query: str,
) -> None:
    """Another one repeats the step, of another size, and goes on; the sum is exact, and so is the undo."""
    monkeypatch.setattr(_runner, "_FIRST_SIZE", 7)
    monkeypatch.setattr(StepPace, "next_size", lambda *_: 7)
    ids = [f"r{number}" for number in range(40)]
    tasks.put(TaskState.RETRY, *ids, error_msg="why")
    before = tasks_only(redis_client)
    options = OperationOptions(process_at=NOW.to_datetime(), max_retry=3, queue="other")
    targets = Targets(query=query) if query else Targets({"default": [*ids, "nope"]})
    started = operator.start_operation(act, targets, options, reason="r")
    die_at_note(monkeypatch, step)
    with pytest.raises(KeyboardInterrupt):
        operator.run_operation(started.operation)
    monkeypatch.undo()
    monkeypatch.setattr(_runner, "_FIRST_SIZE", 3)
    # By the clock, a slow machine and a fast one would take different numbers of steps.
    monkeypatch.setattr(StepPace, "next_size", lambda *_: 3)
    assert not operator.operation(started.operation).is_orphaned
    assert OperationState.RUNNING == operator.run_operation(started.operation).state
    lapse(redis_client, started.operation)
    with blocking.Operator(redis_url, ADMIN, clock=_Clock()) as another:
        assert another.operation(started.operation).is_orphaned
        ended = another.run_operation(started.operation)
        assert (OperationState.DONE, 40, 0 if query else 1) == (ended.state, ended.done, ended.skipped)
        assert (() if query else (("default", "nope", "missing"),)) == ended.refused
        if act == "enqueue_again":
            assert 40 == len(set(tasks.ids("pending")))
        if act == "move":
            assert (set(ids), []) == (set(Tasks(redis_client, "other").ids("retry")), tasks.ids("retry"))
        if act == "delete":
            assert 40 == ended.undoable
            die_at_note(monkeypatch, step)
            undoing = another.undo_operation(started.operation)
            with pytest.raises(KeyboardInterrupt):
                another.run_operation(undoing.operation)
            monkeypatch.undo()
            lapse(redis_client, undoing.operation)
            undone = operator.run_operation(undoing.operation)
            assert (OperationState.DONE, 40, 0) == (undone.state, undone.done, undone.skipped)
            assert before == tasks_only(redis_client)
    assert redis_client.ttl(tasks.keys.step(started.operation)) <= 3_600


@pytest.mark.parametrize("seed", range(8))
def test_any_number_of_deaths_costs_no_count(
    operator: blocking.Operator, redis_client: RedisClient, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Drawn: where each process dies, and how large its steps are; also in the last step of a queue."""
    drawn = random.Random(seed)
    note = _runner.OperationRunner._note
    left = [0]

    def dying(self: Any, *args: Any, **named: Any) -> str:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return note(self, *args, **named)

    def run_to_the_end(operation: str) -> OperationInfo:
        while True:
            left[0] = drawn.choice([0, 1, 2, 3, 99])
            monkeypatch.setattr(_runner, "_FIRST_SIZE", drawn.choice([1, 3, 7, 100]))
            try:
                return operator.run_operation(operation)
            except KeyboardInterrupt:
                lapse(redis_client, operation)

    monkeypatch.setattr(StepPace, "next_size", lambda *_: drawn.choice([1, 3, 7, 20]))
    monkeypatch.setattr(_runner.OperationRunner, "_note", dying)
    ids = [f"r{number}" for number in range(24)]
    for queue in ("default", "low"):
        Tasks(redis_client, queue).put(TaskState.RETRY, *ids, error_msg="why")
    before = tasks_only(redis_client)
    started = operator.start_operation("delete", Targets({"default": ids, "low": ids}), reason="r")
    deleted = run_to_the_end(started.operation)
    assert (48, 0, 48) == (deleted.done, deleted.skipped, deleted.undoable)
    undone = run_to_the_end(operator.undo_operation(started.operation).operation)
    assert (OperationState.DONE, 48, 0) == (undone.state, undone.done, undone.skipped)
    assert before == tasks_only(redis_client)


def die_at_note(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Let the process die after a step was made and before it is noted."""
    note = _runner.OperationRunner._note
    notes: list[str] = []

    def dying(self: Any, *args: Any, **named: Any) -> str:
        notes.append("")
        if len(notes) > step:
            raise KeyboardInterrupt
        return note(self, *args, **named)

    monkeypatch.setattr(_runner.OperationRunner, "_note", dying)


def lapse(client: RedisClient, operation: str) -> None:
    """Let the lease of an operation's owner be over."""
    client.hset(operation_key(operation), "lease", 0)


def test_a_process_that_has_lost_the_operation_does_nothing_more(
    operator: blocking.Operator, redis_url: str, tasks: Tasks, redis_client: RedisClient
) -> None:
    """It was away for longer than its lease; the fencing number tells."""
    ids = [f"r{number}" for number in range(250)]
    tasks.put(TaskState.RETRY, *ids, error_msg="why")
    started = operator.start_operation("delete", Targets({"default": ids}), reason="r")
    counts: list[int] = []

    def take_over(info: OperationInfo) -> None:
        counts.append(info.done)
        lapse(redis_client, started.operation)
        with blocking.Operator(redis_url, ADMIN, clock=_Clock()) as another:
            counts.append(another.run_operation(started.operation).done)

    ended = operator.run_operation(started.operation, progress=take_over)
    assert ([100, 250], 250, 0) == (counts, ended.done, ended.skipped)


def test_an_operation_is_paused_resumed_and_stopped_between_steps(
    operator: blocking.Operator, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the next step at the latest; what was done stays done."""
    monkeypatch.setattr(StepPace, "next_size", lambda *_: 50)
    ids = [f"r{number}" for number in range(350)]
    tasks.put(TaskState.RETRY, *ids, error_msg="why")
    started = operator.start_operation("run", Targets({"default": ids}), reason="r")
    name = started.operation
    paused = operator.run_operation(name, progress=lambda info: operator.pause_operation(name))
    assert (OperationState.PAUSED, 150) == (paused.state, paused.done)
    assert 150 == operator.run_operation(name).done
    assert OperationState.RUNNING == operator.resume_operation(name).state
    stopped = operator.run_operation(name, progress=lambda info: operator.stop_operation(name))
    assert (OperationState.STOPPED, 300) == (stopped.state, stopped.done)
    assert (300, 50) == (len(tasks.ids("pending")), len(tasks.ids("retry")))
    with pytest.raises(InvalidOptionError, match="must be paused, and is stopped"):
        operator.resume_operation(name)


def test_a_rate_is_kept_by_rests(
    operator: blocking.Operator, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten a second: three steps of ten, and after each as long a rest as the rate asks for."""
    rests: list[float] = []
    clock = [0.0]

    def rest(seconds: float) -> None:
        rests.append(seconds)
        clock[0] += seconds

    monkeypatch.setattr(_runner, "sleep_blocking", rest)
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    ids = [f"r{number}" for number in range(30)]
    tasks.put(TaskState.RETRY, *ids, error_msg="why")
    assert 30 == run(operator, "run", *ids, rate=10.0).done
    assert [1.0, 1.0, 1.0] == rests


def test_what_is_dangerous_needs_a_reason_and_the_number(
    operator: blocking.Operator, redis_url: str, tasks: Tasks
) -> None:
    """Deletions and large operations; in production also small ones."""
    tasks.pending("a")
    one, many = Targets({"default": ["a"]}), Targets({"default": [str(n) for n in range(1_001)]})
    with pytest.raises(InvalidOptionError, match="say why, for delete of 1 task"):
        operator.start_operation("delete", one)
    with pytest.raises(InvalidOptionError, match="say why, for run of 1,001 tasks"):
        operator.start_operation("run", many)
    with pytest.raises(InvalidOptionError, match="must be the number of tasks, 1001"):
        operator.start_operation("run", many, reason="r")
    with (
        blocking.Operator(redis_url, ADMIN, environment="production") as careful,
        pytest.raises(InvalidOptionError, match="must be the number of tasks, 1"),
    ):
        careful.start_operation("archive", one)
    assert [] == operator.operations()


@pytest.mark.parametrize(
    ("act", "targets", "options", "expected"),
    [
        ("run", {}, {}, "at least one task"),
        ("run", {"default": []}, {}, "at least one task"),
        ("run", {"default": [str(n) for n in range(10_001)]}, {}, "at most 10,000 tasks"),
        ("run", {"default": "abc"}, {}, "put a single one into a list"),
        ("run", {" ": ["a"]}, {}, "^queue="),
        ("run", {"default": ["a"]}, {"rate": 0.0}, "more than 0 tasks a second"),
        ("reschedule", {"default": ["a"]}, {}, "say when the tasks are due"),
        ("edit", {"default": ["a"]}, {}, "say what to edit"),
        ("edit", {"default": ["a"]}, {"max_retry": -1}, "^max_retry="),
        ("cancel", {"default": ["a"]}, {"outcome": "forget"}, "must be retry, archive or delete"),
        ("undo", {"default": ["a"]}, {}, "started by undo_operation"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(
    operator: blocking.Operator,
    redis_client: RedisClient,
    act: str,
    targets: Any,
    options: dict[str, Any],
    expected: str,
) -> None:
    """The error is a sentence."""
    with pytest.raises(InvalidOptionError, match=expected):
        operator.start_operation(act, Targets(targets), OperationOptions(**options), reason="r")
    assert [] == redis_client.keys("asynq:x:op:*")


def test_the_audit_has_start_and_end_of_an_operation(operator: blocking.Operator, tasks: Tasks) -> None:
    """With its id and counts; headers are shown without secrets."""
    tasks.put(TaskState.RETRY, "r", error_msg="why")
    edited = run(operator, "edit", "r", "nope", headers={"authorization": "hunter2"})
    ended, started = operator.audit(AuditFilters()).entries
    assert ("run_operation", "start_operation") == (ended.verb, started.verb)
    assert edited.operation == ended.operation == started.operation
    assert {"total": 2, "done": 1, "skipped": 1, "trimmed": 0} == ended.counts
    assert (("default",), "test") == (started.queues, started.reason)
    assert "2 tasks: r, nope" == started.details["targets"]
    assert "hunter2" not in json.dumps([dict(ended.details), dict(started.details)])
    assert (ended, started) == operator.audit(AuditFilters(operation=edited.operation)).entries


def test_an_operation_needs_the_permission_of_its_act_for_each_queue(
    operator: blocking.Operator, tasks: Tasks, redis_client: RedisClient
) -> None:
    """Besides `operations.run`."""
    tasks.pending("a")
    Tasks(redis_client, "other").pending("b")
    grants: dict[AnyPermission, tuple[str, ...]] = {
        permission: ("*",) for permission in Permission if permission is not Permission.TASKS_DELETE
    }
    user = operator.for_user(User("mira", grants))
    one = Targets({"default": ["a"]})
    assert 1 == user.preview_operation("archive", one).total
    with pytest.raises(PermissionDeniedError, match=r"needs tasks\.delete"):
        user.preview_operation("delete", one)
    with pytest.raises(PermissionDeniedError, match=r"needs tasks\.delete"):
        user.start_operation("delete", one, reason="r")
    started = operator.start_operation("delete", one, reason="r")
    for act in ("run_operation", "pause_operation", "stop_operation", "undo_operation"):
        with pytest.raises(PermissionDeniedError, match=r"needs tasks\.delete"):
            getattr(user, act)(started.operation)
    both = operator.start_operation("archive", Targets({"default": ["a"], "other": ["b"]}), reason="r")
    bound = operator.for_user(User.with_role("eve", "admin", queues="default"))
    assert [started.operation] == [info.operation for info in bound.operations()]
    with pytest.raises(OperationNotFoundError):
        bound.run_operation(both.operation)
    with pytest.raises(QueueNotFoundError):
        bound.start_operation("archive", Targets({"default": ["a"], "other": ["b"]}), reason="r")
    assert ["a"] == tasks.ids("pending")


@pytest.mark.usefixtures("damage_allowed")
def test_foreign_records_are_not_operations(operator: blocking.Operator, redis_client: RedisClient) -> None:
    """They are left out of the list, and cannot be run."""
    redis_client.hset(operation_key("odd"), mapping={"state": "running", "act": "explode"})
    redis_client.zadd("asynq:x:ops", {"odd": 1})
    assert [] == operator.operations()
    with pytest.raises(OperationNotFoundError):
        operator.run_operation("odd")


def test_an_operation_outlives_an_outage(
    operator: blocking.Operator, tasks: Tasks, redis_client: RedisClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error reaches the caller, and the operation goes on with the next call."""
    tasks.put(TaskState.RETRY, "r", error_msg="why")
    started = operator.start_operation("run", Targets({"default": ["r"]}))

    def unreachable(*args: Any, **named: Any) -> Any:
        raise RedisUnavailableError("here", "gone")

    with monkeypatch.context() as patch:
        patch.setattr(_acts, "run_step", unreachable)
        with pytest.raises(RedisUnavailableError):
            operator.run_operation(started.operation)
    lapse(redis_client, started.operation)
    assert (OperationState.DONE, 1) == (
        operator.run_operation(started.operation).state,
        operator.operation(started.operation).done,
    )


def test_an_operation_that_meets_a_bug_has_failed_and_says_why(
    operator: blocking.Operator, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not go on for ever."""
    tasks.put(TaskState.RETRY, "r", error_msg="why")
    started = operator.start_operation("run", Targets({"default": ["r"]}))

    def broken(*args: Any, **named: Any) -> Any:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(_acts, "run_step", broken)
    with pytest.raises(ZeroDivisionError):
        operator.run_operation(started.operation)
    failed = operator.operation(started.operation)
    assert (OperationState.FAILED, "ZeroDivisionError: a bug", True) == (
        failed.state,
        failed.error,
        failed.has_ended,
    )


@pytest.mark.parametrize(
    ("query", "total", "redacted"), [("state:archived", 30, 10), ("payload.token:hush", 0, 30)]
)
def test_a_preview_redacts_what_it_shows_and_what_the_query_tests(
    redis_url: str, tasks: Tasks, query: str, total: int, redacted: int
) -> None:
    """Redacting each of 100,000 tasks takes seconds. A query learns nothing about a secret."""
    seen: list[str] = []

    class CountingRedactor(Redactor):
        def task(self, task: TaskInfo, *, payload_view: bool) -> TaskInfo:
            seen.append(task.id)
            return super().task(task, payload_view=payload_view)

        def with_secret_fields(self, secret_fields: Any) -> Redactor:
            del secret_fields
            return self

    tasks.put(TaskState.ARCHIVED, *(f"t{number}" for number in range(30)), payload=b'{"token":"hush"}')
    with blocking.Operator(redis_url, ADMIN, redactor=CountingRedactor()) as operator:
        preview = operator.preview_operation("run", Targets(query=query))
    assert (total, redacted) == (preview.total, len(seen))
    assert all(b"hush" not in task.payload for task in preview.samples)


def test_a_query_chooses_the_tasks_of_all_queues(
    operator: blocking.Operator, tasks: Tasks, redis_client: RedisClient
) -> None:
    """They are in states that the act allows; record and audit name query and queues."""
    tasks.put(TaskState.RETRY, "r1", "r2", type="mail", error_msg="why")
    tasks.pending("p", type="mail")
    tasks.put(TaskState.ARCHIVED, "z", type="other")
    Tasks(redis_client, "low").put(TaskState.ARCHIVED, "l", type="mail")
    targets = Targets(query="type:mail")
    preview = operator.preview_operation("run", targets)
    assert (3, {"pending": 1}, True) == (preview.total, preview.left_out, preview.is_exact)
    started = operator.start_operation("run", targets)
    assert (3, {"default", "low"}, "type:mail") == (started.total, set(started.queues), started.query)
    ended = operator.run_operation(started.operation)
    assert (OperationState.DONE, 3, 0) == (ended.state, ended.done, ended.skipped)
    assert ({"p", "r1", "r2"}, ["z"]) == (set(tasks.ids("pending")), tasks.ids("archived"))
    entry = operator.audit(AuditFilters(verb="start_operation")).entries[0]
    assert ({"default", "low"}, "type:mail") == (set(entry.queues), entry.details["targets"])
    assert not redis_client.hexists(operation_key(started.operation), "tasks:0")
    with pytest.raises(InvalidOptionError, match="finds no task that cancel can be done with"):
        operator.start_operation("cancel", targets, reason="r")


def test_a_task_that_no_longer_matches_when_it_is_its_turn_is_left_alone(
    operator: blocking.Operator, tasks: Tasks
) -> None:
    """It was changed or moved after the operation had been started."""
    tasks.put(TaskState.ARCHIVED, "a", "b", "c", "d", payload=b'{"user":1}')
    started = operator.start_operation("delete", Targets(query="payload.user:1"), reason="r")
    operator.edit_payload("default", "b", b'{"user":2}')
    operator.run_task("default", "c")
    operator.delete_task("default", "d")
    ended = operator.run_operation(started.operation)
    assert (1, 3) == (ended.done, ended.skipped)
    reasons = {task_id: reason for _, task_id, reason in ended.refused}
    assert {"b": "changed", "c": "pending", "d": "changed"} == reasons
    assert (["b"], ["c"]) == (tasks.ids("archived"), tasks.ids("pending"))


def test_a_query_finds_only_what_its_user_may_act_on_and_see(
    operator: blocking.Operator, tasks: Tasks, redis_client: RedisClient
) -> None:
    """Other queues are not searched, and payloads need `payload.view`."""
    tasks.put(TaskState.ARCHIVED, "a", payload=b'{"user":1}')
    Tasks(redis_client, "low").put(TaskState.ARCHIVED, "l", payload=b'{"user":1}')
    grants: dict[AnyPermission, tuple[str, ...]] = {
        Permission.TASKS_VIEW: ("*",),
        Permission.OPERATIONS_RUN: ("*",),
        Permission.TASKS_RUN: ("low",),
    }
    user = operator.for_user(User("mira", grants))
    assert {("low", "email:deliver", "archived"): 1} == user.preview_operation(
        "run", Targets(query="state:archived")
    ).counts
    assert ("low",) == user.start_operation("run", Targets(query="state:archived")).queues
    with pytest.raises(QueryError):
        user.start_operation("run", Targets(query="payload.user:1"))
    with pytest.raises(QueryError):
        operator.preview_operation("run", Targets(query="payload.user:1 AND ("))


def test_a_query_that_finds_too_many_is_refused(
    operator: blocking.Operator, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the number, also if a search has found them before."""
    monkeypatch.setattr(operations, "MAX_FOUND", 2)
    tasks.put(TaskState.ARCHIVED, "a", "b", "c")
    with pytest.raises(InvalidOptionError, match="finds more than 2 tasks"):
        operator.start_operation("run", Targets(query="state:archived"))
    with pytest.raises(InvalidOptionError, match="must name at most 200,000 tasks"):
        operator.start_operation(
            "run", Targets({"default": [str(number) for number in range(200_001)]}, "state:archived")
        )


def test_tasks_that_a_query_has_found_are_acted_on_as_far_as_they_still_match(
    operator: blocking.Operator, tasks: Tasks
) -> None:
    """Others that match by now are left alone: the user has not seen them."""
    tasks.put(TaskState.ARCHIVED, "a", "b", "c", type="mail")
    targets = Targets({"default": ["a", "b"]}, "state:archived type:mail")
    operator.run_task("default", "b")
    started = operator.start_operation("delete", targets, reason="test")
    ended = operator.run_operation(started.operation)
    assert (1, (("default", "b", "changed"),)) == (ended.done, ended.refused)
    assert "state:archived type:mail" == ended.query
    assert ["c"] == tasks.ids("archived")


def test_no_operation_on_named_tasks_tells_of_payloads(operator: blocking.Operator, tasks: Tasks) -> None:
    """A query that looks into payloads needs the permission to view them, as in a search."""
    tasks.put(TaskState.ARCHIVED, "a", payload=b"secret")
    grants: dict[AnyPermission, tuple[str, ...]] = {
        permission: ("*",) if permission is not Permission.PAYLOAD_VIEW else ("other",)
        for permission in Permission
    }
    user = operator.for_user(User("mira", grants))
    with pytest.raises(InvalidOptionError, match="payloads you may not view"):
        user.start_operation("run", Targets({"default": ["a"]}, "payload:secret"))
