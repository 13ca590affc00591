"""Route table of `/api/v1`: source of the router, the checks and the OpenAPI document."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyasynq.operations import VERBS

from . import (
    bodies,
    events,
    fleet,
    operations,
    queues,
    rehearse,
    search,
    service_reports,
    statistics,
    tasks,
)
from .idempotency import KEY_HEADER
from .parameters import (
    CURSOR,
    DRY_RUN,
    LIMIT,
    QUERY,
    QUEUE_NAMES,
    REASON,
    SINCE,
    STATE,
    UNTIL,
    Parameter,
    Type,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import msgspec

    from .call import ApiCall

    Answer = Callable[[ApiCall], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class ProgramRoute:
    """One route of the API."""

    method: str
    path: str
    """Path template below `/api/v1`; a path parameter (in braces) is one segment."""
    verb: str
    """Method of `Operator` that the route calls; empty for none."""
    answer: Answer
    returns: str = ""
    """OpenAPI component of the response's records; empty for a response without a body."""
    is_list: bool = False
    """Whether the response is a page: `items`, `next`, and additional JSON members."""
    facts: tuple[str, ...] = ()
    """Names of the additional JSON members of a page."""
    parameters: tuple[Parameter, ...] = ()
    body: type[msgspec.Struct] | None = None
    status: int = 200
    rehearse: Answer | None = None
    """Handler of a dry run; by default the checks of `rehearse.py`."""
    dry_returns: str = "DryRun"
    """OpenAPI component of the response to a dry run."""
    lines: str = ""
    """OpenAPI component of each line, if the route can answer with JSON lines."""
    headers: tuple[str, ...] = ()
    """Names of the request headers that the route reads."""
    summary: str = ""
    """Summary of the route; by default the summary of its verb."""

    @property
    def changes(self) -> bool:
        """Whether the route changes something."""
        return self.method != "GET"

    @property
    def about(self) -> str:
        """Summary of the route as an imperative, for OpenAPI."""
        text = self.summary or VERBS[self.verb].summary
        return text[:1].upper() + text[1:]

    @property
    def all_parameters(self) -> tuple[Parameter, ...]:
        """All query parameters of the route, including `dry_run` of changes."""
        return (*self.parameters, DRY_RUN) if self.changes else self.parameters


_MEMORY: Final = Parameter("memory", "Also estimate the memory.", Type.FLAG, default=False)
_SCAN: Final = Parameter("scan", "Tasks to look at, the newest first.", Type.WHOLE, 10_000, 1, 100_000)
_TYPES: Final = Parameter("type", "Name of a task type; may be given several times.", is_list=True, most=100)
_SERIES: Final = (
    QUEUE_NAMES,
    _TYPES,
    Parameter("since", "Begin; an hour ago unless given.", Type.TIME),
    UNTIL,
    Parameter("step", "Seconds of a step.", choices=("60", "600", "86400")),
)
_AUDIT: Final = (
    *(
        Parameter(name, about, default="")
        for name, about in (
            ("user", "Only of this user."),
            ("verb", "Only this method of `Operator`."),
            ("queue", "Only about queues that this pattern matches."),
            ("outcome", "Only with this outcome."),
            ("operation", "Only of this operation."),
            ("text", "Only with this text in reason, details or error."),
        )
    ),
    SINCE,
    UNTIL,
    CURSOR,
    LIMIT,
)
_QUEUE: Final = "/queues/{queue}"
_TASK: Final = "/queues/{queue}/tasks/{task}"
_SOME: Final = "/queues/{queue}/tasks"
_RESULTS: Final = ("done", "refused", "trimmed")


def _get(
    path: str, verb: str, answer: Answer, returns: str, *parameters: Parameter, **more: Any
) -> ProgramRoute:
    return ProgramRoute("GET", path, verb, answer, returns, parameters=parameters, **more)


def _list(
    path: str, verb: str, answer: Answer, returns: str, *parameters: Parameter, **more: Any
) -> ProgramRoute:
    return _get(path, verb, answer, returns, *parameters, is_list=True, **more)


def _post(
    path: str,
    verb: str,
    answer: Answer,
    returns: str,
    body: type[msgspec.Struct] = bodies.ReasonRequest,
    **more: Any,
) -> ProgramRoute:
    return ProgramRoute("POST", path, verb, answer, returns, body=body, **more)


def _delete(path: str, verb: str, answer: Answer, *parameters: Parameter, **more: Any) -> ProgramRoute:
    return ProgramRoute("DELETE", path, verb, answer, parameters=parameters, **{"status": 204, **more})


def _some(verb: str, answer: Answer, body: type[msgspec.Struct]) -> ProgramRoute:
    return _post(
        f"{_SOME}:{verb.partition('_')[0]}",
        verb,
        answer,
        "TaskResult",
        body,
        is_list=True,
        facts=_RESULTS,
        rehearse=partial(rehearse.rehearse_by_ids, name=verb),
        dry_returns="TaskResult",
    )


API_ROUTES: Final = (
    _get("/me", "", statistics.handle_get_me, "Me", summary="tell who asks, and what that user may"),
    # Queues
    _list(
        "/queues",
        "queue_infos",
        queues.handle_list_queues,
        "Queue",
        QUEUE_NAMES,
        _MEMORY,
        CURSOR,
        LIMIT,
        facts=("total",),
    ),
    _get(_QUEUE, "queue", queues.handle_get_queue, "Queue", _MEMORY),
    _delete(
        _QUEUE,
        "delete_queue",
        queues.handle_delete_queue,
        Parameter("force", "Also delete its tasks.", Type.FLAG, default=False),
        REASON,
        returns="Count",
        status=200,
    ),
    _post(f"{_QUEUE}:pause", "pause_queue", queues.handle_pause_queue, "Queue", bodies.PauseRequest),
    _post(f"{_QUEUE}:resume", "resume_queue", queues.handle_resume_queue, "Queue"),
    _get(f"{_QUEUE}/limits", "queue_limits", queues.handle_get_limits, "QueueLimits"),
    ProgramRoute(
        "PATCH",
        f"{_QUEUE}/limits",
        "set_queue_limits",
        queues.handle_change_limits,
        "QueueLimits",
        body=bodies.LimitsRequest,
        rehearse=rehearse.rehearse_limits,
        headers=("If-Match",),
    ),
    ProgramRoute(
        "PUT",
        f"{_QUEUE}/wait-objective",
        "set_wait_objective",
        queues.handle_set_wait_objective,
        "Queue",
        body=bodies.WaitObjectiveRequest,
    ),
    _list(
        f"{_QUEUE}/history",
        "history",
        queues.handle_list_history,
        "HistoryDay",
        Parameter("days", "Days to tell, in UTC.", Type.WHOLE, 10, 1, 90),
    ),
    _list(
        f"{_QUEUE}/groups", "group_page", queues.handle_list_groups, "Group", CURSOR, LIMIT, facts=("total",)
    ),
    _list(
        f"{_QUEUE}/errors",
        "errors",
        queues.handle_list_errors,
        "ErrorGroup",
        Parameter("state", "State of the tasks.", choices=("archived", "retry"), default="archived"),
        _SCAN,
        SINCE,
        UNTIL,
        facts=("scanned", "total", "is_complete", "without_error"),
    ),
    _list(
        f"{_QUEUE}/types",
        "types",
        queues.handle_list_type_counts,
        "TypeCounts",
        _SCAN,
        SINCE,
        UNTIL,
        facts=("scanned", "total", "is_complete"),
    ),
    # Tasks
    _list(
        _SOME,
        "walk_tasks",
        tasks.handle_list_tasks,
        "Task",
        STATE,
        Parameter("group", "Group of aggregating tasks.", default=""),
        CURSOR,
        LIMIT,
        facts=("looked_at",),
        summary="list the tasks of one state, the newest first",
    ),
    _post(
        _SOME,
        "enqueue",
        tasks.handle_enqueue,
        "EnqueuedTask",
        bodies.EnqueueRequest,
        status=201,
        rehearse=rehearse.rehearse_enqueue,
        headers=(KEY_HEADER,),
    ),
    _get(_TASK, "task", tasks.handle_get_task, "Task"),
    _delete(_TASK, "delete_task", tasks.handle_delete_task, REASON),
    _post(f"{_TASK}:run", "run_task", tasks.handle_run_task, "Task"),
    _post(f"{_TASK}:archive", "archive_task", tasks.handle_archive_task, "Task"),
    _post(
        f"{_TASK}:cancel",
        "cancel_task",
        tasks.handle_cancel_task,
        "Cancellation",
        bodies.CancelTaskRequest,
        status=202,
    ),
    _post(
        f"{_TASK}:reschedule",
        "reschedule_task",
        tasks.handle_reschedule_task,
        "Task",
        bodies.RescheduleRequest,
    ),
    _post(
        f"{_TASK}:copy",
        "enqueue_copy",
        tasks.handle_copy_task,
        "EnqueuedTask",
        bodies.CopyRequest,
        status=201,
        headers=(KEY_HEADER,),
    ),
    ProgramRoute(
        "PUT",
        f"{_TASK}/payload",
        "edit_payload",
        tasks.handle_edit_payload,
        "Task",
        body=bodies.PayloadRequest,
        headers=("If-Match",),
        rehearse=rehearse.rehearse_payload,
    ),
    _some("run_tasks", tasks.handle_run_tasks, bodies.TasksRequest),
    _some("archive_tasks", tasks.handle_archive_tasks, bodies.ArchiveTasksRequest),
    _some("delete_tasks", tasks.handle_delete_tasks, bodies.TasksRequest),
    _some("cancel_tasks", tasks.handle_cancel_tasks, bodies.CancelTasksRequest),
    # Searches
    _list(
        "/tasks",
        "search",
        search.handle_search,
        "Task",
        QUERY,
        QUEUE_NAMES,
        CURSOR,
        LIMIT,
        facts=("matches", "looked_at", "total", "facets"),
        lines="",
        summary="find tasks by a query; as lines of JSON, export all of them",
    ),
    _get("/search/explain", "explain_search", search.handle_explain, "Explanation", QUERY, QUEUE_NAMES),
    _list(
        "/search/complete",
        "complete_query",
        search.handle_complete,
        "Completion",
        QUERY,
        Parameter("caret", "Position in the query; its end unless given.", Type.WHOLE, None, 0, 4_000),
    ),
    # Operations on many tasks
    _list("/operations", "operations", operations.handle_list_operations, "OperationRecord", LIMIT),
    _post(
        "/operations",
        "start_operation",
        operations.handle_start,
        "OperationRecord",
        bodies.OperationRequest,
        status=202,
        rehearse=operations.handle_preview,
        dry_returns="OperationPreview",
        headers=(KEY_HEADER,),
    ),
    _get("/operations/{operation}", "operation", operations.handle_get_operation, "OperationRecord"),
    _post("/operations/{operation}:pause", "pause_operation", operations.handle_pause, "OperationRecord"),
    _post(
        "/operations/{operation}:resume",
        "resume_operation",
        operations.handle_resume,
        "OperationRecord",
        status=202,
    ),
    _post("/operations/{operation}:stop", "stop_operation", operations.handle_stop, "OperationRecord"),
    _post(
        "/operations/{operation}:undo",
        "undo_operation",
        operations.handle_undo,
        "OperationRecord",
        status=202,
    ),
    _post(
        "/operations/{operation}:run", "run_operation", operations.handle_run, "OperationRecord", status=202
    ),
    # Audit
    _list("/audit", "audit", operations.handle_list_audit, "AuditEntry", *_AUDIT, facts=("looked_at",)),
    _list(
        "/audit/refusals",
        "refusals",
        operations.handle_list_refusals,
        "AuditEntry",
        *_AUDIT,
        facts=("looked_at",),
    ),
    # What runs
    _list("/servers", "servers", fleet.handle_list_servers, "Server"),
    _get("/servers/{server}", "servers", fleet.handle_get_server, "Server", summary="show a live server"),
    _post("/servers/{server}:quiet", "quiet_server", fleet.handle_quiet_server, "RequestAnswer", status=202),
    _post("/servers/{server}:stop", "stop_server", fleet.handle_stop_server, "RequestAnswer", status=202),
    *(
        _post(
            f"/servers:{name.partition('_')[0]}",
            name,
            answer,
            "RequestAnswer",
            bodies.ServersRequest,
            is_list=True,
            status=202,
            rehearse=partial(rehearse.rehearse_servers, name=name),
            dry_returns="RequestAnswer",
        )
        for name, answer in (
            ("quiet_servers", fleet.handle_quiet_servers),
            ("stop_servers", fleet.handle_stop_servers),
        )
    ),
    _list("/schedules", "schedules", fleet.handle_list_schedules, "Schedule"),
    _get(
        "/schedules/{schedule}", "schedules", fleet.handle_get_schedule, "Schedule", summary="show a schedule"
    ),
    _list(
        "/schedules/{schedule}/events",
        "schedule_events",
        fleet.handle_list_schedule_events,
        "ScheduleEvent",
        Parameter("page", "Number of the page.", Type.WHOLE, 1, 1, 1_000),
        LIMIT,
    ),
    _post("/schedules/{schedule}:pause", "pause_schedule", fleet.handle_pause_schedule, "RequestAnswer"),
    _post("/schedules/{schedule}:resume", "resume_schedule", fleet.handle_resume_schedule, "RequestAnswer"),
    _post(
        "/schedules/{schedule}:run",
        "run_schedule",
        fleet.handle_run_schedule,
        "EnqueuedTask",
        status=201,
        headers=(KEY_HEADER,),
    ),
    _list("/types", "task_types", fleet.handle_list_types, "TaskType"),
    _get(
        "/events",
        "follow",
        events.handle_follow,
        "",
        Parameter("queue", "Queue to follow; 1 to 16 times.", is_list=True, most=16, is_required=True),
        Parameter("kind", "Only events of this kind; may be given several times.", is_list=True, most=50),
        _TYPES,
        Parameter("seconds", "How long to follow.", Type.SECONDS, 60, 1, 3_600),
        lines="Event",
    ),
    _get("/redis", "redis_info", fleet.handle_get_redis, "Redis"),
    # The task service
    _list("/deliveries", "deliveries", service_reports.handle_list_deliveries, "Delivery"),
    _get(
        "/deliveries/{delivery}",
        "deliveries",
        service_reports.handle_get_delivery,
        "DeliveryDetails",
        summary="show a type's requests to a host, with the newest one that failed",
    ),
    _list("/commands", "commands", service_reports.handle_list_commands, "Command"),
    _get(
        "/commands/{command}",
        "commands",
        service_reports.handle_get_command,
        "CommandDetails",
        summary="show a command with the end of its output",
    ),
    _post(
        "/commands/{command}:kill",
        "cancel_task",
        service_reports.handle_kill_command,
        "Cancellation",
        bodies.CancelTaskRequest,
        status=202,
        rehearse=service_reports.rehearse_kill,
        summary="kill a running command, by cancelling its task",
    ),
    _list("/doors", "service_doors", service_reports.handle_list_doors, "Door"),
    # Trouble
    _list(
        "/attention",
        "attention",
        fleet.handle_list_findings,
        "Finding",
        Parameter("severity", "Only what is as severe.", Type.WHOLE, 1, 1, 5),
        Parameter("snoozed", "Also snoozed findings.", Type.FLAG, default=False),
        facts=("at", "unreadable"),
    ),
    _post("/attention:snooze", "snooze_finding", fleet.handle_snooze, "", bodies.SnoozeRequest, status=204),
    _post(
        "/attention:unsnooze",
        "unsnooze_finding",
        fleet.handle_unsnooze,
        "",
        bodies.UnsnoozeRequest,
        status=204,
    ),
    _list("/doctor", "examine", fleet.handle_examine, "DoctorFinding", QUEUE_NAMES, facts=("skipped",)),
    _post(
        "/doctor:repair",
        "repair",
        fleet.handle_repair,
        "DoctorFinding",
        bodies.RepairRequest,
        is_list=True,
        facts=("skipped",),
    ),
    # Statistics
    _list("/stats/latency", "attempt_series", statistics.handle_list_latency, "Latency", *_SERIES),
    _list("/stats/series", "attempt_series", statistics.handle_list_series, "SeriesPoint", *_SERIES),
    _get(
        "/scale",
        "queue",
        queues.handle_get_scale,
        "Scale",
        Parameter("queue", "Queue of the workers; 1 to 100 times.", is_list=True, most=100, is_required=True),
        Parameter("due_within", "Also count tasks that are due so soon.", Type.SECONDS, 0, 0, 86_400),
        summary="count the tasks that want a slot, for autoscalers",
    ),
    _list(
        "/marks",
        "marks",
        statistics.handle_list_marks,
        "Mark",
        Parameter("since", "Begin; a week ago unless given.", Type.TIME),
        UNTIL,
    ),
    _post(
        "/marks",
        "add_mark",
        statistics.handle_add_mark,
        "Mark",
        bodies.MarkRequest,
        status=201,
        headers=(KEY_HEADER,),
    ),
    _delete("/marks/{mark}", "remove_mark", statistics.handle_remove_mark),
    # Saved views
    _list(
        "/views",
        "views",
        statistics.handle_list_views,
        "SavedView",
        Parameter("page", "Only of this page.", default=""),
    ),
    _post(
        "/views",
        "save_view",
        statistics.handle_save_view,
        "SavedView",
        bodies.ViewRequest,
        status=201,
        rehearse=rehearse.rehearse_view,
        summary="save a view for oneself, or with `shared` for all",
    ),
    _delete(
        "/views/{view}",
        "delete_view",
        statistics.handle_delete_view,
        Parameter("shared", "Delete a shared view of any user.", Type.FLAG, default=False),
        rehearse=rehearse.rehearse_deletion_of_view,
    ),
)
"""All routes, except that of the OpenAPI document itself. The first matching route answers."""
