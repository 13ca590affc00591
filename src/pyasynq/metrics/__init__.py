"""Metrics for Prometheus: queues (a superset of Asynq's exporter), workers and clients.

`pyasynq metrics` and `pyasynq worker --metrics` use this package; use it in your program like this:

    app.mount("/metrics", MetricsApp("redis://localhost:6379/0"))     # ASGI; MetricsWsgi for WSGI

    enqueued = EnqueueMetrics()
    app.use_client(enqueued)
    REGISTRY.register(RegistryCollector(enqueued))                     # of prometheus-client

Nothing here needs prometheus-client, except `RegistryCollector`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .apps import MetricsApp, MetricsWsgi
from .clients import EnqueueMetrics
from .queues import QueueMetrics
from .worker import FleetMetrics, WorkerMetrics

if TYPE_CHECKING:
    from .registry import RegistryCollector

__all__ = [
    "EnqueueMetrics",
    "FleetMetrics",
    "MetricsApp",
    "MetricsWsgi",
    "QueueMetrics",
    "RegistryCollector",
    "WorkerMetrics",
]


def __getattr__(name: str) -> Any:
    """Import `RegistryCollector` when it is first used: it needs prometheus-client."""
    if name != "RegistryCollector":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    from .registry import RegistryCollector  # noqa: PLC0415 - as above

    return RegistryCollector
