"""Face records of remote workers, which lease tasks from the task service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyasynq._face_records.fields import Field, Kind, View

if TYPE_CHECKING:
    from pyasynq._face_records.fields import Record
    from pyasynq.operations import LeaseWorker


LEASE_WORKERS: Final = View(
    "lease-worker-list",
    "id",
    (
        Field("id", Kind.TEXT, "Id of the worker.", is_wide=True),
        Field("name", Kind.TEXT, "Its name, as it gives it.", "NAME", shrinks=True),
        Field("language", Kind.TEXT, "Its language, as it gives it.", "LANGUAGE"),
        Field("version", Kind.TEXT, "Version of its program, as it gives it.", "VERSION", is_wide=True),
        Field("host", Kind.TEXT, "Its host, else the address that asks.", "HOST", shrinks=True),
        Field("pid", Kind.NUMBER, "Its process id.", "PID", is_optional=True),
        Field("key", Kind.TEXT, "Id of its API key.", "KEY", is_wide=True),
        Field("state", Kind.TEXT, "`working`, `waiting` or `away`.", "STATE"),
        Field("tasks", Kind.COUNT, "Tasks that it has leased.", "TASKS"),
        Field("waits", Kind.COUNT, "Requests of it that wait for tasks.", "WAITS", is_wide=True),
        Field("queues", Kind.NAMES, "Queues of its tasks.", "QUEUES", shrinks=True),
        Field("seen", Kind.TIME, "When it asked last.", "SEEN"),
    ),
    "No workers have leased tasks from the task service within 10 minutes.",
)


def describe_lease_worker(worker: LeaseWorker) -> Record:
    """Return the face record of a remote worker, which leases tasks from the task service."""
    return {
        "id": worker.id,
        "name": worker.name,
        "language": worker.language,
        "version": worker.version,
        "host": worker.host,
        "pid": worker.pid,
        "key": worker.key_id,
        "state": worker.state,
        "tasks": worker.at_work,
        "waits": worker.parked,
        "queues": list(worker.queues),
        "seen": worker.seen,
    }
