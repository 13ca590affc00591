"""Names from OpenTelemetry's semantic conventions for messaging, and pyasynq's additional names.

The conventions for messaging are in development and may change. The names are those of the version in
`SCHEMA_URL`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from opentelemetry import metrics, trace

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter, MeterProvider
    from opentelemetry.trace import Tracer, TracerProvider

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.44.0"
SCOPE: Final = "pyasynq"
SYSTEM: Final = "messaging.system"
SYSTEM_NAME: Final = "asynq"
DESTINATION: Final = "messaging.destination.name"
OPERATION_NAME: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
MESSAGE_ID: Final = "messaging.message.id"
BODY_SIZE: Final = "messaging.message.body.size"
BATCH_COUNT: Final = "messaging.batch.message_count"
ERROR_TYPE: Final = "error.type"
TASK_TYPE: Final = "messaging.asynq.task.type"
RETRIED: Final = "messaging.asynq.task.retried"
MAX_RETRY: Final = "messaging.asynq.task.max_retry"
OUTCOME: Final = "messaging.asynq.task.outcome"
GROUP: Final = "messaging.asynq.task.group"
WAITED: Final = "messaging.asynq.task.waited_seconds"
SECONDS_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
"""Histogram bounds in seconds, as advised by the OpenTelemetry conventions."""


def get_tracer(provider: TracerProvider | None) -> Tracer:
    """Return pyasynq's tracer from a provider; None means the global provider."""
    return trace.get_tracer(SCOPE, tracer_provider=provider, schema_url=SCHEMA_URL)


def get_meter(provider: MeterProvider | None) -> Meter:
    """Return pyasynq's meter from a provider; None means the global provider."""
    return metrics.get_meter(SCOPE, meter_provider=provider, schema_url=SCHEMA_URL)


def make_attributes(queue: str, operation: str, kind: str) -> dict[str, Any]:
    """Return the attributes that all spans and metrics of a messaging operation share."""
    return {SYSTEM: SYSTEM_NAME, DESTINATION: queue, OPERATION_NAME: operation, OPERATION_TYPE: kind}


def name_error(error: BaseException) -> str:
    """Return the value of `error.type`: the name of the error's class, with its module unless built in."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
