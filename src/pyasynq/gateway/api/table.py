"""The table of routes of `/v1`, apart from those of leases."""

from __future__ import annotations

from typing import Final

from .call import ServiceRoute
from .enqueue import serve_enqueue
from .enqueue_batch import serve_enqueue_batch
from .results import serve_result
from .task_types import (
    serve_delete_type,
    serve_get_type,
    serve_list_types,
    serve_patch_type,
    serve_put_type,
)
from .tasks import serve_cancel_task, serve_delete_task, serve_get_task

_WRITE: Final = ("tasks:write",)
_READ: Final = ("tasks:read",)
_SEE_TYPES: Final = ("tasks:write", "tasks:read", "types:write")
_EDIT_TYPES: Final = ("types:write",)

SERVICE_ROUTES: Final = (
    ServiceRoute("POST", "/v1/tasks", _WRITE, serve_enqueue),
    ServiceRoute("POST", "/v1/tasks:batch", _WRITE, serve_enqueue_batch),
    ServiceRoute("GET", "/v1/tasks/{queue}/{task}", _READ, serve_get_task),
    ServiceRoute("DELETE", "/v1/tasks/{queue}/{task}", _WRITE, serve_delete_task),
    ServiceRoute("GET", "/v1/tasks/{queue}/{task}/result", _READ, serve_result),
    ServiceRoute("POST", "/v1/tasks/{queue}/{task}:cancel", _WRITE, serve_cancel_task),
    ServiceRoute("GET", "/v1/task-types", _SEE_TYPES, serve_list_types),
    ServiceRoute("GET", "/v1/task-types/{name}", _SEE_TYPES, serve_get_type),
    ServiceRoute("PUT", "/v1/task-types/{name}", _EDIT_TYPES, serve_put_type),
    ServiceRoute("PATCH", "/v1/task-types/{name}", _EDIT_TYPES, serve_patch_type),
    ServiceRoute("DELETE", "/v1/task-types/{name}", _EDIT_TYPES, serve_delete_type),
)
