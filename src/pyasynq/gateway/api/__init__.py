"""The HTTP API of the task service: tasks, task types, probes, and the mounted routes of leases.

app = task_service(read_service_file(Path("service.toml")))
uvicorn.run(app)
"""

from __future__ import annotations

from .service import TaskService, task_service

__all__ = ["TaskService", "task_service"]
