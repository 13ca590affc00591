# Generated from src/pyasynq/operations/operator/__init__.py by tools/unasync.py; change that file and run `make sync`.
"""The one interface through which command line, dashboards and HTTP API read and change queues and tasks."""

from __future__ import annotations

from .api_keys import ApiKeyOperator
from .attention import AttentionOperator
from .audit import AuditOperator
from .bulk import BulkOperator
from .commands import CommandOperator
from .configurations import ConfigurationOperator
from .deliveries import DeliveryOperator
from .doctor import DoctorOperator
from .lease_workers import LeaseWorkerOperator
from .operations import OperationOperator
from .queues import QueueOperator
from .series import StatisticsOperator
from .servers import ServerOperator
from .service_doors import ServiceDoorOperator
from .tasks import TaskOperator
from .views import ViewOperator

__all__ = ["Operator"]


class Operator(
    QueueOperator,
    TaskOperator,
    BulkOperator,
    ServerOperator,
    OperationOperator,
    AuditOperator,
    StatisticsOperator,
    ViewOperator,
    ConfigurationOperator,
    ApiKeyOperator,
    LeaseWorkerOperator,
    DeliveryOperator,
    CommandOperator,
    ServiceDoorOperator,
    DoctorOperator,
    AttentionOperator,
):
    """Reads and changes Redis for one user: checks the permission, redacts the result, writes the audit.

        with Operator("redis://localhost:6379/0", User.local()) as operator:
            operator.pause_queue("emails", reason="the provider is down")

    It connects with the first call. Close it, or use it as a context manager.

    Every method raises `PermissionDeniedError` if the user lacks the permission of the method's row in
    `pyasynq.operations.VERBS`; nothing was changed then. For a queue that the user does not see it raises
    `QueueNotFoundError`, whether the queue exists or not. Otherwise it raises what `Inspector` raises. A call
    that is cancelled may have taken effect.

    Args:
        target: where Redis is, as for `Client`.
        user: user on whose behalf calls are made, with permissions.
        queues: patterns of the queues that are shown; all other queues are hidden, whatever the user may see.
        read_only: refuse every change.
        environment: name of the environment; in `production` operations need the typed number of tasks.
        redactor: replaces secrets; by default, values with the built-in names.
        show: function that turns payloads and results in a custom format into readable text.
        types: task types of the user's application; they override types that workers have published.
        timeout: maximum seconds of one call to Redis, including reconnecting and resending.
        clock: source of the present time.

    Raises:
        ConfigurationError: for a URL or a value that cannot work.
    """
