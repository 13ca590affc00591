"""OpenTelemetry: spans and metrics of enqueueing and processing, by its API alone (extra `otel`).

    from pyasynq.contrib.otel import trace_app

    trace_app(app)                                   # after the tracer provider is set

`opentelemetry-instrument pyasynq worker myapp.tasks:app` does that for every app without a line of code.
Names and attributes follow OpenTelemetry's conventions for messaging, at the version in `SCHEMA_URL`.
"""

from __future__ import annotations

from pyasynq._extras import explain_missing

try:
    from .client import ClientTracing
    from .conventions import SCHEMA_URL
    from .groups import link_members
    from .instrumentor import PyasynqInstrumentor, trace_app
    from .worker import WorkerTracing
except ModuleNotFoundError as error:
    raise explain_missing(error) from None

__all__ = [
    "SCHEMA_URL",
    "ClientTracing",
    "PyasynqInstrumentor",
    "WorkerTracing",
    "link_members",
    "trace_app",
]
