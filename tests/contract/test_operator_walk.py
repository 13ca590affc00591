"""Every verb and view of the operator, for each role and each pattern of queues."""

from __future__ import annotations

import inspect
import itertools
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq import operations
from pyasynq._wire import keys
from pyasynq.errors import (
    InvalidOptionError,
    OperationNotFoundError,
    PermissionDeniedError,
    PyasynqError,
    QueueBusyError,
    QueueNotFoundError,
    QueueNotPausedError,
    ServerNotFoundError,
)
from pyasynq.operations import ROLES as ROLES_OF_TABLE
from pyasynq.operations import VERBS, Act, AnyPermission, Subject, User
from pyasynq.operations import sync as blocking
from pyasynq.operations.operation import PERMISSION_OF_ACT
from pyasynq.operations.patterns import matches_any
from tests.factories import NOW
from tests.operator_walk import MINE, QUEUES, SECRET, THEIRS, arguments, fill
from tests.snapshots import snapshot

if TYPE_CHECKING:
    from tests.fix_broker import Perform
    from tests.invariants import RedisClient

ROLES = ("viewer", "operator", "admin")
LEAST_ROLE = {
    **dict.fromkeys(
        (
            "queues",
            "queue_infos",
            "queue",
            "history",
            "groups",
            "tasks",
            "task",
            "errors",
            "error_reports",
            "state_counts",
            "types",
            "servers",
            "lease_workers",
            "deliveries",
            "commands",
            "service_doors",
            "schedules",
        ),
        "viewer",
    ),
    **dict.fromkeys(("audit", "refusals", "quiet_server", "stop_server"), "operator"),
    **dict.fromkeys(("quiet_servers", "stop_servers"), "operator"),
    **dict.fromkeys(("task_types", "operation", "operations"), "viewer"),
    **dict.fromkeys(("search", "explain_search", "complete_query", "walk_tasks", "find_tasks"), "viewer"),
    **dict.fromkeys(("preview_operation", "start_operation", "run_operation", "undo_operation"), "operator"),
    **dict.fromkeys(("pause_operation", "resume_operation", "stop_operation"), "operator"),
    **dict.fromkeys(("schedule_events", "recent_events", "follow", "attempt_series", "marks"), "viewer"),
    **dict.fromkeys(("add_mark", "remove_mark"), "operator"),
    **dict.fromkeys(
        ("pause_queue", "resume_queue", "set_queue_limits", "enqueue", "edit_payload"), "operator"
    ),
    **dict.fromkeys(
        ("run_task", "cancel_task", "archive_task", "delete_task", "reschedule_task"), "operator"
    ),
    **dict.fromkeys(("run_tasks", "cancel_tasks", "archive_tasks", "delete_tasks"), "operator"),
    **dict.fromkeys(("run_all_tasks", "archive_all_tasks", "delete_all_tasks"), "operator"),
    **dict.fromkeys(("views", "save_view", "delete_view"), "viewer"),
    **dict.fromkeys(("group_page", "queue_limits", "queue_nodes", "wait_task", "examine"), "viewer"),
    **dict.fromkeys(("pause_schedule", "resume_schedule", "run_schedule", "enqueue_copy"), "operator"),
    **dict.fromkeys(("repair", "replicas"), "admin"),
    **dict.fromkeys(("share_view", "export", "import_tasks"), "operator"),
    **dict.fromkeys(("snooze_finding", "unsnooze_finding", "set_wait_objective"), "operator"),
    "attention": "viewer",
    **dict.fromkeys(("type_configurations", "type_configurations_version", "type_configuration"), "viewer"),
    "type_configuration_versions": "viewer",
    **dict.fromkeys(("set_type_configuration", "delete_type_configuration"), "admin"),
    **dict.fromkeys(("api_keys", "api_key", "make_api_key", "rotate_api_key", "delete_api_key"), "admin"),
    **dict.fromkeys(("delete_queue", "redis_info", "delete_shared_view"), "admin"),
    **dict.fromkeys(("redis_report", "redis_texts", "queue_locations"), "admin"),
}

_NOT_FOUND = (QueueNotFoundError, ServerNotFoundError, OperationNotFoundError)

NOT_POSSIBLE: dict[str, type[PyasynqError]] = {
    "resume_queue": QueueNotPausedError,
    "delete_queue": QueueBusyError,
    "undo_operation": InvalidOptionError,
}
"""Errors that verbs raise in this database when they are allowed."""


class _Clock:
    def now(self) -> Any:
        return NOW

    redis_now = now

    def monotonic(self) -> float:
        return 0.0


def state_of(client: RedisClient) -> dict[str, Any]:
    """Return everything in the database except the refused calls."""
    return {key: value for key, value in snapshot(client).items() if key != keys.REFUSED_KEY}


def call(redis_url: str, user: User, verb: str, queue: str, **settings: Any) -> Any:
    """Call a verb for a queue; return its result, the items of a stream as a list."""
    given = arguments(verb, queue)
    assert given is not None, f"tests/operator_walk.py does not say how to call {verb}"
    with blocking.Operator(redis_url, user, clock=_Clock(), **settings) as operator:
        result = getattr(operator, verb)(*given[0], **given[1])
        return list(result) if inspect.isgenerator(result) else result


def outcome(redis_url: str, user: User, verb: str) -> PyasynqError | None:
    """Call a verb; return the error that it raises."""
    try:
        call(redis_url, user, verb, MINE)
    except PyasynqError as error:
        return error
    return None


def test_every_verb_has_a_row_and_every_row_a_verb() -> None:
    """Both operators have the same methods, and this test knows who may call each."""
    for operator in (operations.Operator, blocking.Operator):
        methods = {
            name
            for name in dir(operator)
            if not name.startswith("_") and inspect.isfunction(getattr(operator, name))
        }
        assert set(VERBS) == methods - {"for_user", "close", "present", "note_refused_request"}
    assert set(VERBS) == set(LEAST_ROLE)


@pytest.mark.sample(12)
@pytest.mark.parametrize("verb", VERBS)
def test_a_role_may_do_what_the_table_says(
    redis_url: str, redis_client: RedisClient, perform: Perform, verb: str
) -> None:
    """A refused call names the missing permission, and changes nothing in Redis."""
    for role in ROLES:
        user = User.with_role("mira", role)
        redis_client.flushall()
        fill(redis_client, perform)
        before = state_of(redis_client)
        error = outcome(redis_url, user, verb)
        if ROLES.index(role) >= ROLES.index(LEAST_ROLE[verb]):
            assert (role, NOT_POSSIBLE.get(verb, type(None))) == (role, type(error))
            continue
        assert isinstance(error, PermissionDeniedError), f"{role} may call {verb}"
        assert error.permission in VERBS[verb].needed
        assert before == state_of(redis_client)


@pytest.mark.sample(25)
@pytest.mark.parametrize("verb", VERBS)
def test_a_user_learns_nothing_of_queues_that_are_not_shown(
    redis_url: str, redis_client: RedisClient, perform: Perform, verb: str
) -> None:
    """They do not exist for the user, who is told the same of queues that really do not exist."""
    user = User.with_role("mira", "admin", queues="team-*")
    fill(redis_client, perform)
    before = state_of(redis_client)
    if VERBS[verb].subject in {
        *(Subject.QUEUE, Subject.ENTRY, Subject.SERVER),
        *(Subject.TARGETS, Subject.OPERATION),
    }:
        for queue in (THEIRS, "nope"):
            with pytest.raises((QueueNotFoundError, ServerNotFoundError, OperationNotFoundError)) as error:
                call(redis_url, user, verb, queue)
            assert queue in str(error.value)
        assert before == state_of(redis_client)
        return
    try:
        shown = repr(call(redis_url, user, verb, MINE))
    except PermissionDeniedError as error:
        shown = str(error)
    assert THEIRS not in shown


PATTERNS = (("*",), ("team-*",), ("payments",), ("team-*", "payments"), ("nothing",))
_NAMED = {Subject.QUEUE, Subject.ENTRY, Subject.SERVER, Subject.TARGETS, Subject.OPERATION}
_ACT_OF_WALK = {"run_operation": Act.DELETE, "preview_operation": Act.RUN, "start_operation": Act.RUN}
_ACT_OF_OPERATION = dict.fromkeys(
    ("run_operation", "pause_operation", "resume_operation", "stop_operation", "undo_operation"), Act.DELETE
)


def needed_for(verb: str) -> set[AnyPermission]:
    """Return the permissions that the walk's call of a verb needs, by the tables."""
    act = {**_ACT_OF_WALK, **_ACT_OF_OPERATION}.get(verb)
    return {*VERBS[verb].needed, *([PERMISSION_OF_ACT[act]] if act else [])}


def is_granted(verb: str, role: str, patterns: tuple[str, ...], queue: str) -> bool:
    """Return whether the tables let a user of this role call a verb."""
    if not needed_for(verb) <= ROLES_OF_TABLE[role]:
        return False
    if VERBS[verb].subject is Subject.EVERYTHING:
        return "*" in patterns
    return VERBS[verb].subject not in _NAMED or matches_any(queue, patterns)


@pytest.mark.sample(25)
@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_is_refused_by_role_and_queue_as_the_table_says(
    redis_url: str, redis_client: RedisClient, perform: Perform, verb: str
) -> None:
    """All roles, patterns of queues and queues; refused calls leave each key as it was."""
    fill(redis_client, perform)
    before = state_of(redis_client)
    for role, patterns, queue in itertools.product(ROLES, PATTERNS, QUEUES):
        granted = is_granted(verb, role, patterns, queue)
        # Another test makes the changes that are allowed, and calls each view in each role.
        if granted and (VERBS[verb].is_audited or role != "admin"):
            continue
        if queue != MINE and VERBS[verb].subject not in _NAMED:
            continue
        user = User.with_role("mira", role, queues=patterns)
        refusal = refused(redis_url, user, verb, queue)
        assert granted is (refusal is None), f"{role} of {patterns}, {verb} of {queue}: {refusal!r}"
        assert not (THEIRS in str(refusal) and queue == MINE), "it tells the name of another queue"
    assert before == state_of(redis_client)


def refused(redis_url: str, user: User, verb: str, queue: str) -> PyasynqError | None:
    """Call a verb; return the error if it was refused."""
    try:
        call(redis_url, user, verb, queue)
    except (PermissionDeniedError, *_NOT_FOUND) as error:
        return error
    return None


def test_to_stop_a_server_a_user_needs_all_its_queues(
    redis_url: str, redis_client: RedisClient, perform: Perform
) -> None:
    """The server is shown without the queue that the user does not see, whose name is not told either."""
    fill(redis_client, perform)
    before = state_of(redis_client)
    user = User.with_role("mira", "admin", queues=MINE)
    with blocking.Operator(redis_url, user, clock=_Clock()) as operator:
        shared = next(server for server in operator.servers() if server.id == "s")
        assert [MINE] == list(shared.queues)
        assert [f"runs-in-{MINE}"] == [worker.task_id for worker in shared.active_workers]
        with pytest.raises(PermissionDeniedError) as error:
            operator.stop_server("s")
        assert THEIRS not in str(error.value)
        both = operator.for_user(User.with_role("root", "admin"))
        assert before == state_of(redis_client)
        both.stop_server("s")
        assert before != state_of(redis_client)
        assert {MINE, THEIRS} == set(both.audit().entries[0].queues)


@pytest.mark.sample(10)
@pytest.mark.parametrize("verb", [name for name, verb in VERBS.items() if verb.changes])
def test_a_read_only_face_refuses_every_change(
    redis_url: str, redis_client: RedisClient, perform: Perform, verb: str
) -> None:
    """A user with every right is refused too."""
    fill(redis_client, perform)
    before = state_of(redis_client)
    with pytest.raises(PermissionDeniedError, match="this is read-only"):
        call(redis_url, User.with_role("root", "admin"), verb, MINE, read_only=True)
    assert before == state_of(redis_client)


@pytest.mark.sample(20)
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("verb", [name for name, verb in VERBS.items() if not verb.changes])
def test_no_view_shows_a_secret(
    redis_url: str, redis_client: RedisClient, perform: Perform, verb: str, role: str
) -> None:
    """Payload, result, headers, error, traceback: looked for in everything that the result holds."""
    fill(redis_client, perform)
    try:
        found = call(redis_url, User.with_role("mira", role), verb, MINE)
    except PermissionDeniedError:
        return
    assert SECRET not in everything_in(found)


def everything_in(value: Any) -> str:
    """Return the texts and bytes of a result, however deep, also those that `repr` leaves out."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, dict):
        return " ".join(map(everything_in, [*value, *value.values()]))
    if isinstance(value, (list, tuple)):
        return " ".join(map(everything_in, value))
    names = getattr(value, "__dataclass_fields__", None) or getattr(value, "__slots__", ())
    if names:
        return " ".join(everything_in(getattr(value, name)) for name in names)
    return str(value)
