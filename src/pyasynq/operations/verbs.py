"""The table of everything that an operator can see and do: one row for each method of `Operator`.

A new view or verb needs a method of a class in `operator/`, and a row in this table. The method only calls
Redis through an `OperatorInspector`; the row decides about permission, redaction and audit.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from .permissions import Permission, ProgramPermission

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .permissions import AnyPermission


class Subject(enum.Enum):
    """Subject of a verb, which determines the queues for which the user needs the permission."""

    QUEUE = "a queue, or a task in it"
    """The argument `queue`. A user who does not see the queue is told that there is none."""
    QUEUES = "some queues"
    """The argument `queues`: each of these queues; None means all for which the user has the permission."""
    SHOWN = "what the user sees"
    """Any queue; data about queues that the user does not see are removed from the result."""
    SERVER = "all queues of a server"
    """The argument `server_id`: every queue that the server serves."""
    SERVERS = "all queues of some servers"
    """The argument `server_ids`, or `version` and `engine_version`: every queue of each of these servers."""
    ENTRY = "the queue of a schedule"
    """The argument `entry_id`: the queue into which this schedule enqueues."""
    TARGETS = "the queues of some tasks"
    """The arguments `targets` and `act`: every queue of the tasks, also with the permission of the act."""
    OPERATION = "the queues of an operation"
    """The argument `operation_id`: every queue of the operation; a change also needs the act's permission."""
    EVERYTHING = "all queues"
    """Every queue, present and future: the pattern `*`."""


_WITHOUT_CONTENTS: Final = frozenset(
    {
        *("queues", "queue_infos", "queue", "history", "groups", "group_page", "queue_limits", "queue_nodes"),
        *("pause_queue", "resume_queue", "set_queue_limits", "delete_queue", "types", "explain_search"),
        "state_counts",
        *("complete_query", "run_task", "cancel_task", "archive_task", "delete_task", "reschedule_task"),
        *("run_tasks", "archive_tasks", "delete_tasks", "cancel_tasks"),
        *("run_all_tasks", "archive_all_tasks", "delete_all_tasks"),
        *("operation", "operations", "pause_operation", "resume_operation", "stop_operation"),
        *("quiet_server", "stop_server", "quiet_servers", "stop_servers"),
        *("task_types", "pause_schedule", "resume_schedule"),
        *("attempt_series", "marks", "add_mark", "remove_mark", "examine", "repair", "replicas"),
        *("queue_locations", "redis_texts"),
        *("type_configurations", "type_configurations_version", "type_configuration"),
        *("set_type_configuration", "delete_type_configuration", "type_configuration_versions"),
        *("api_keys", "api_key", "make_api_key", "rotate_api_key", "delete_api_key"),
        *("lease_workers", "service_doors"),
        *("redis_info", "views", "save_view", "share_view", "delete_view", "delete_shared_view"),
    }
)
"""Verbs that show no task contents, so that secret fields need not be read. Add a new verb only if that is
so."""


@dataclass(frozen=True, slots=True)
class Verb:
    """One row of the table of verbs: the permission that a method of `Operator` needs, and its effects."""

    name: str
    permission: AnyPermission
    subject: Subject
    changes: bool
    summary: str
    """Description for help texts and the page of permissions."""
    also: tuple[AnyPermission, ...] = ()
    """Further permissions that are needed, for the same subject."""
    is_audited: bool = False
    """Whether calls are recorded in the audit: all changes, and reads that export data."""

    @property
    def may_show_contents(self) -> bool:
        """Whether the verb may show or test contents of tasks, and so needs the names of secret fields."""
        return self.name not in _WITHOUT_CONTENTS

    @property
    def needed(self) -> tuple[AnyPermission, ...]:
        """All permissions that a call needs."""
        return (self.permission, *self.also)


def _view(
    name: str, subject: Subject, summary: str, permission: AnyPermission = Permission.TASKS_VIEW
) -> Verb:
    return Verb(name, permission, subject, changes=False, summary=summary)


def _change(
    name: str, subject: Subject, permission: AnyPermission, summary: str, *also: AnyPermission
) -> Verb:
    return Verb(name, permission, subject, changes=True, summary=summary, also=also, is_audited=True)


_ROWS: Final = (
    # Queues
    _view("queues", Subject.QUEUES, "list the names of queues"),
    _view("queue_infos", Subject.QUEUES, "show the counts, the latency and the limits of many queues"),
    _view("queue", Subject.QUEUE, "show the counts, the latency and the limits of a queue"),
    _view("history", Subject.QUEUE, "show what a queue processed on the last days"),
    _view("groups", Subject.QUEUE, "list the groups of a queue"),
    _view("group_page", Subject.QUEUE, "list the groups of a queue page by page"),
    _view("queue_limits", Subject.QUEUE, "show what limits a queue, and what its servers ask for"),
    _view("queue_nodes", Subject.QUEUE, "show the nodes of a cluster that have a queue"),
    _change("pause_queue", Subject.QUEUE, Permission.QUEUES_PAUSE, "pause a queue"),
    _change("resume_queue", Subject.QUEUE, Permission.QUEUES_PAUSE, "resume a queue"),
    _change("set_queue_limits", Subject.QUEUE, Permission.QUEUES_LIMITS, "change the limits of a queue"),
    _change("delete_queue", Subject.QUEUE, Permission.QUEUES_DELETE, "delete a queue with all its tasks"),
    # Tasks
    _view("tasks", Subject.QUEUE, "list the tasks of one state"),
    _view("walk_tasks", Subject.QUEUE, "go through the tasks of one state, the newest first"),
    _view("task", Subject.QUEUE, "show a task"),
    _view("errors", Subject.QUEUE, "group failed tasks by their errors"),
    _view("error_reports", Subject.QUEUES, "group failed tasks of many queues by their errors"),
    _view("state_counts", Subject.QUEUES, "count the tasks of one state in many queues"),
    _view("types", Subject.QUEUE, "count the task types of a queue"),
    _view("find_tasks", Subject.QUEUES, "find tasks by their ids"),
    _view("search", Subject.QUEUES, "find tasks by a query"),
    Verb(
        "export",
        Permission.TASKS_VIEW,
        Subject.QUEUES,
        changes=False,
        summary="write what a query finds as lines of JSON",
        also=(Permission.PAYLOAD_VIEW,),
        is_audited=True,
    ),
    _view("explain_search", Subject.QUEUES, "show what a query would look at"),
    _view("complete_query", Subject.QUEUES, "complete a query while it is written"),
    _change("run_task", Subject.QUEUE, Permission.TASKS_RUN, "run a task now"),
    _change("cancel_task", Subject.QUEUE, Permission.TASKS_CANCEL, "cancel a running task"),
    _change("archive_task", Subject.QUEUE, Permission.TASKS_ARCHIVE, "archive a task"),
    _change("delete_task", Subject.QUEUE, Permission.TASKS_DELETE, "delete a task"),
    _change("reschedule_task", Subject.QUEUE, Permission.TASKS_RUN, "change when a task is due"),
    _change("edit_payload", Subject.QUEUE, Permission.TASKS_EDIT, "replace the payload of a task"),
    _view("wait_task", Subject.QUEUE, "wait for the end of a task and its result"),
    _change("enqueue_copy", Subject.QUEUE, Permission.TASKS_ENQUEUE, "enqueue a copy of a task"),
    _change("enqueue", Subject.QUEUE, Permission.TASKS_ENQUEUE, "enqueue a task"),
    # Many tasks of a queue in one call
    _change("run_tasks", Subject.QUEUE, Permission.TASKS_RUN, "run some tasks now"),
    _change("cancel_tasks", Subject.QUEUE, Permission.TASKS_CANCEL, "cancel some running tasks"),
    _change("archive_tasks", Subject.QUEUE, Permission.TASKS_ARCHIVE, "archive some tasks"),
    _change("delete_tasks", Subject.QUEUE, Permission.TASKS_DELETE, "delete some tasks"),
    _change("run_all_tasks", Subject.QUEUE, Permission.TASKS_RUN, "run all tasks of a state now"),
    _change("archive_all_tasks", Subject.QUEUE, Permission.TASKS_ARCHIVE, "archive all tasks of a state"),
    _change("delete_all_tasks", Subject.QUEUE, Permission.TASKS_DELETE, "delete all tasks of a state"),
    _change("import_tasks", Subject.QUEUE, Permission.TASKS_ENQUEUE, "enqueue tasks of an export again"),
    # Saved views
    _view("views", Subject.SHOWN, "list saved views"),
    _change("save_view", Subject.SHOWN, Permission.TASKS_VIEW, "save a view for oneself"),
    _change("share_view", Subject.SHOWN, Permission.OPERATIONS_RUN, "save a view for all"),
    _change("delete_view", Subject.SHOWN, Permission.TASKS_VIEW, "delete a view of one's own"),
    _change(
        "delete_shared_view",
        Subject.EVERYTHING,
        Permission.SETTINGS_ADMIN,
        "delete a view that is shared",
    ),
    # Configurations of the task service
    _view("type_configurations", Subject.SHOWN, "list the configurations of task types"),
    _view("type_configurations_version", Subject.SHOWN, "show whether a task type was configured"),
    _view("type_configuration", Subject.QUEUE, "show the configuration of a task type"),
    _view(
        "type_configuration_versions",
        Subject.QUEUE,
        "list the versions of a task type's configuration",
    ),
    _change("set_type_configuration", Subject.QUEUE, ProgramPermission.TYPES_EDIT, "configure a task type"),
    _change(
        "delete_type_configuration",
        Subject.QUEUE,
        ProgramPermission.TYPES_EDIT,
        "delete the configuration of a task type",
    ),
    # API keys of programs
    _view("api_keys", Subject.EVERYTHING, "list the API keys of programs", ProgramPermission.KEYS_ADMIN),
    _view("api_key", Subject.EVERYTHING, "show an API key", ProgramPermission.KEYS_ADMIN),
    _change("make_api_key", Subject.EVERYTHING, ProgramPermission.KEYS_ADMIN, "make an API key"),
    _change(
        "rotate_api_key", Subject.EVERYTHING, ProgramPermission.KEYS_ADMIN, "give an API key a new secret"
    ),
    _change("delete_api_key", Subject.EVERYTHING, ProgramPermission.KEYS_ADMIN, "delete an API key"),
    # Operations on many tasks
    _view("preview_operation", Subject.TARGETS, "show what an operation would do", Permission.OPERATIONS_RUN),
    _change(
        "start_operation", Subject.TARGETS, Permission.OPERATIONS_RUN, "start an operation on many tasks"
    ),
    _change(
        "run_operation", Subject.OPERATION, Permission.OPERATIONS_RUN, "run an operation, or go on with it"
    ),
    _change("pause_operation", Subject.OPERATION, Permission.OPERATIONS_RUN, "pause an operation"),
    _change("resume_operation", Subject.OPERATION, Permission.OPERATIONS_RUN, "let a paused operation go on"),
    _change("stop_operation", Subject.OPERATION, Permission.OPERATIONS_RUN, "stop an operation"),
    _change("undo_operation", Subject.OPERATION, Permission.OPERATIONS_RUN, "undo the deletion of tasks"),
    _view("operations", Subject.SHOWN, "list operations"),
    _view("operation", Subject.OPERATION, "show an operation"),
    # Audit
    _view("audit", Subject.SHOWN, "read the audit", Permission.AUDIT_VIEW),
    _view("refusals", Subject.SHOWN, "read what was refused", Permission.AUDIT_VIEW),
    # Servers and schedules
    _view("servers", Subject.SHOWN, "list the live servers with what they run"),
    _view("lease_workers", Subject.SHOWN, "list the workers that lease from the task service"),
    _view("deliveries", Subject.SHOWN, "list the hosts that hosted task types call"),
    _view("commands", Subject.SHOWN, "list the commands of hosted task types"),
    _view("service_doors", Subject.SHOWN, "list the doors of the task service, such as that for Gearman"),
    _change("quiet_server", Subject.SERVER, Permission.SERVERS_STOP, "let a server take no more tasks"),
    _change("stop_server", Subject.SERVER, Permission.SERVERS_STOP, "shut a server down with its worker"),
    _change(
        "quiet_servers",
        Subject.SERVERS,
        Permission.SERVERS_STOP,
        "let all servers of a version take no more tasks",
    ),
    _change("stop_servers", Subject.SERVERS, Permission.SERVERS_STOP, "shut down all servers of a version"),
    _view("task_types", Subject.SHOWN, "list the task types that workers describe"),
    _view("schedules", Subject.SHOWN, "list the periodic tasks of running schedulers"),
    _view("schedule_events", Subject.ENTRY, "list what a schedule enqueued"),
    _change("pause_schedule", Subject.ENTRY, Permission.SCHEDULES_PAUSE, "pause a schedule"),
    _change("resume_schedule", Subject.ENTRY, Permission.SCHEDULES_PAUSE, "resume a schedule"),
    _change("run_schedule", Subject.ENTRY, Permission.SCHEDULES_RUN, "enqueue the task of a schedule now"),
    _view("recent_events", Subject.QUEUES, "show the newest events of tasks"),
    _view("follow", Subject.QUEUES, "follow the events of tasks live"),
    # Statistics
    _view("attempt_series", Subject.QUEUES, "show how attempts ended over time, by queue and type"),
    _view("marks", Subject.SHOWN, "list the marks in charts"),
    _change("add_mark", Subject.SHOWN, Permission.OPERATIONS_RUN, "mark a time in charts"),
    _change("remove_mark", Subject.SHOWN, Permission.OPERATIONS_RUN, "remove a mark from charts"),
    # Redis
    _view("examine", Subject.QUEUES, "look for damage in Redis"),
    _change("repair", Subject.QUEUES, Permission.DOCTOR_REPAIR, "repair damage in Redis"),
    _view("replicas", Subject.EVERYTHING, "show the replicas that are read from", Permission.SETTINGS_ADMIN),
    _view("queue_locations", Subject.QUEUES, "show where in a cluster queues are", Permission.SETTINGS_ADMIN),
    _view("redis_texts", Subject.EVERYTHING, "show the replies of INFO", Permission.SETTINGS_ADMIN),
    _view(
        "redis_report", Subject.EVERYTHING, "show what each server of Redis tells", Permission.SETTINGS_ADMIN
    ),
    _view("redis_info", Subject.EVERYTHING, "show what Redis tells of itself", Permission.SETTINGS_ADMIN),
    # Attention
    _view("attention", Subject.SHOWN, "show what needs attention"),
    _change("snooze_finding", Subject.QUEUE, Permission.OPERATIONS_RUN, "set a finding apart for a time"),
    _change("unsnooze_finding", Subject.QUEUE, Permission.OPERATIONS_RUN, "end the snooze of a finding"),
    _change(
        "set_wait_objective",
        Subject.QUEUE,
        Permission.QUEUES_LIMITS,
        "set how long tasks of a queue may wait",
    ),
)

VERBS: Final[Mapping[str, Verb]] = MappingProxyType({verb.name: verb for verb in _ROWS})
"""Rows of the table by the name of the `Operator` method."""


def verb_named(name: str) -> Verb:
    """Return the row of a method. Raises `TypeError` if the table has none."""
    try:
        return VERBS[name]
    except KeyError:
        raise TypeError(
            f"{name} has no row in pyasynq.operations.verbs, so nothing says who may call it"
        ) from None
