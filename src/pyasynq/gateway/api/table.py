"""Route table of `/v1`, from which the router, the permission checks and the OpenAPI document are made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyasynq.gateway.leases import bodies as lease_bodies

from . import answers, bodies
from .call import ServiceRoute
from .description import DRY_RUN, KEY_HEADER, REASON, WAIT, RouteDescription
from .enqueue import serve_enqueue
from .enqueue_batch import serve_enqueue_batch
from .results import serve_result
from .task_events import serve_events
from .task_types import (
    serve_delete_type,
    serve_get_type,
    serve_list_types,
    serve_patch_type,
    serve_put_type,
)
from .tasks import (
    serve_archive_task,
    serve_cancel_task,
    serve_delete_task,
    serve_get_task,
    serve_run_task,
)
from .type_versions import serve_list_versions, serve_roll_back_type

if TYPE_CHECKING:
    from .call import Handler

_READ: Final = ("tasks:read",)
_EDIT_TYPES: Final = ("types:write",)
_SEE_TYPES: Final = ("tasks:write", "tasks:read", "types:write")
_TASK: Final = "/v1/tasks/{queue}/{task}"
_TYPE: Final = "/v1/task-types/{name}"
_CHANGED: Final = {200: (answers.StoredTaskType, answers.TypeRehearsal), 201: answers.StoredTaskType}


def _post_task(path: str, handle: Handler, description: RouteDescription) -> ServiceRoute:
    return ServiceRoute("POST", path, ("tasks:write",), handle, description)


def _edit_type(method: str, handle: Handler, description: RouteDescription) -> ServiceRoute:
    return ServiceRoute(method, _TYPE, _EDIT_TYPES, handle, description)


SERVICE_ROUTES: Final = (
    _post_task(
        "/v1/tasks",
        serve_enqueue,
        RouteDescription(
            "Enqueue a task.",
            {
                201: answers.AcceptedTask,
                200: (answers.AcceptedTask, answers.EndedTask),
                202: answers.EndedTask,
            },
            (bodies.NewTask, bodies.ShortTask, bodies.GoShortTask),
            (WAIT,),
            (KEY_HEADER,),
            ("Location",),
        ),
    ),
    _post_task(
        "/v1/tasks:batch",
        serve_enqueue_batch,
        RouteDescription(
            "Enqueue many tasks, in their order; with application/x-ndjson as a stream of lines.",
            {200: answers.NewTaskResults},
            (bodies.NewTaskBatch,),
            headers=(KEY_HEADER,),
            lines=answers.NewTaskResult,
        ),
    ),
    ServiceRoute("GET", _TASK, _READ, serve_get_task, RouteDescription("Return a task.", {200: "Task"})),
    ServiceRoute(
        "DELETE",
        _TASK,
        ("tasks:write",),
        serve_delete_task,
        RouteDescription("Delete a task that does not run.", {204: None}, parameters=(REASON,)),
    ),
    ServiceRoute(
        "GET",
        f"{_TASK}/result",
        _READ,
        serve_result,
        RouteDescription(
            "Wait for the end of a task, and return its result.",
            {200: answers.EndedTask, 202: answers.EndedTask},
            parameters=(WAIT,),
        ),
    ),
    ServiceRoute(
        "GET",
        f"{_TASK}/events",
        _READ,
        serve_events,
        RouteDescription(
            "Stream the states of a task until it has ended.",
            {200: None},
            headers=("Last-Event-ID",),
            streams=True,
        ),
    ),
    _post_task(
        f"{_TASK}:cancel",
        serve_cancel_task,
        RouteDescription(
            "Ask for the cancellation of a running task.", {200: "Cancellation"}, (bodies.CancelTask,)
        ),
    ),
    _post_task(
        f"{_TASK}:run",
        serve_run_task,
        RouteDescription("Run a waiting or finished task now.", {204: None}, (bodies.ChangeTask,)),
    ),
    _post_task(
        f"{_TASK}:archive",
        serve_archive_task,
        RouteDescription("Archive a task that does not run.", {204: None}, (bodies.ChangeTask,)),
    ),
    ServiceRoute(
        "GET",
        "/v1/task-types",
        _SEE_TYPES,
        serve_list_types,
        RouteDescription("List task types.", {200: answers.StoredTaskTypes}),
    ),
    ServiceRoute(
        "GET",
        _TYPE,
        _SEE_TYPES,
        serve_get_type,
        RouteDescription(
            "Return a task type.",
            {200: answers.StoredTaskType, 304: None},
            headers=("If-None-Match",),
            sent=("ETag",),
        ),
    ),
    _edit_type(
        "PUT",
        serve_put_type,
        RouteDescription(
            "Replace or make a task type.",
            _CHANGED,
            (answers.TaskTypeFields,),
            (DRY_RUN,),
            ("If-Match", "If-None-Match"),
        ),
    ),
    _edit_type(
        "PATCH",
        serve_patch_type,
        RouteDescription(
            "Change fields of a task type.",
            {200: _CHANGED[200]},
            (answers.TaskTypeFields,),
            (DRY_RUN,),
            ("If-Match",),
        ),
    ),
    ServiceRoute(
        "GET",
        f"{_TYPE}/versions",
        _EDIT_TYPES,
        serve_list_versions,
        RouteDescription(
            "List the newest versions of a task type, with who made them and when.",
            {200: answers.FormerTaskTypes},
        ),
    ),
    ServiceRoute(
        "POST",
        f"{_TYPE}:rollback",
        _EDIT_TYPES,
        serve_roll_back_type,
        RouteDescription(
            "Store a former version of a task type again.",
            _CHANGED,
            (bodies.RollBackType,),
            (DRY_RUN,),
            ("If-Match",),
        ),
    ),
    _edit_type(
        "DELETE",
        serve_delete_type,
        RouteDescription("Delete a task type.", {204: None}, parameters=(DRY_RUN,), headers=("If-Match",)),
    ),
)
"""Routes of tasks and task types."""

LEASE_ROUTES: Final = {
    "/v1/leases": RouteDescription(
        "Lease tasks.", {200: lease_bodies.LeaseAnswer, 204: None}, (lease_bodies.LeaseRequest,)
    ),
    "/v1/attempts:batch": RouteDescription(
        "Extend or settle many attempts.", {200: lease_bodies.BatchAnswer}, (lease_bodies.AttemptBatch,)
    ),
    "/v1/attempts/{token}:extend": RouteDescription(
        "Extend the lease of an attempt.", {200: lease_bodies.Extended}, (lease_bodies.ExtendAttempt,)
    ),
    "/v1/attempts/{token}:complete": RouteDescription(
        "Settle an attempt: the task is done.", {204: None}, (lease_bodies.CompleteAttempt,)
    ),
    "/v1/attempts/{token}:fail": RouteDescription(
        "Settle an attempt: it failed.", {204: None}, (lease_bodies.FailAttempt,)
    ),
    "/v1/attempts/{token}:cancel": RouteDescription(
        "Settle an attempt: the task is not wanted any more.", {204: None}, (lease_bodies.CancelAttempt,)
    ),
    "/v1/attempts/{token}:snooze": RouteDescription(
        "Settle an attempt: the task runs later.", {204: None}, (lease_bodies.SnoozeAttempt,)
    ),
    "/v1/attempts/{token}:release": RouteDescription(
        "Settle an attempt: the task goes back to its queue.", {204: None}, (lease_bodies.ReleaseAttempt,)
    ),
}
"""Descriptions of the lease routes, by path. All take POST requests, and need the scope `work`."""
