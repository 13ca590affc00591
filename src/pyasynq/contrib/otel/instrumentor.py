"""Tracing of apps: `trace_app` for one app, and the entry point of `opentelemetry-instrument` for all."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any, Final, Literal

from pyasynq.app import App
from pyasynq.contrib.otel.client import ClientTracing
from pyasynq.contrib.otel.worker import WorkerTracing

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

_PARENT_VARIABLE: Final = "PYASYNQ_OTEL_PARENT"
AUTO_VARIABLE: Final = "PYASYNQ_OTEL_AUTO"
"""Environment variable set under `opentelemetry-instrument`, so that child processes are traced too."""


def trace_app(
    app: App,
    *,
    parent: Literal["creation"] | None = None,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    baggage: Collection[str] = (),
) -> None:
    """Trace what an app enqueues and runs. Middleware that is added later runs inside the spans.

    Args:
        app: the app.
        parent: as for `WorkerTracing`.
        tracer_provider: None for the global one.
        meter_provider: None for the global one.
        baggage: keys of the baggage that travel with tasks; none unless given.
    """
    providers: dict[str, Any] = {"tracer_provider": tracer_provider, "meter_provider": meter_provider}
    app.use(WorkerTracing(parent=parent, baggage=baggage, **providers))
    app.use_client(ClientTracing(baggage=baggage, **providers))


class PyasynqInstrumentor:
    """Instrumentor that `opentelemetry-instrument` loads: traces every app that is made from now on.

    `PYASYNQ_OTEL_PARENT=creation` in the environment makes the enqueue the parent of each attempt.
    """

    _original: Callable[..., None] | None = None

    def instrument(self, **providers: Any) -> None:
        """Start tracing every new app. Idempotent.

        Args:
            **providers: `tracer_provider` and `meter_provider`, if they are not the global ones.
        """
        if PyasynqInstrumentor._original is not None:
            return
        original = App.__init__
        chosen = {
            name: value for name, value in providers.items() if name in ("tracer_provider", "meter_provider")
        }

        @functools.wraps(original)
        def make_traced(app: App, *args: Any, **settings: Any) -> None:
            original(app, *args, **settings)
            parent: Any = os.environ.get(_PARENT_VARIABLE) or None
            trace_app(app, parent=parent, **chosen)

        PyasynqInstrumentor._original = original
        setattr(App, "__init__", make_traced)  # noqa: B010 - how instrumentation reaches every app
        os.environ[AUTO_VARIABLE] = "1"

    def uninstrument(self, **_: Any) -> None:
        """Stop tracing new apps. Idempotent."""
        if PyasynqInstrumentor._original is not None:
            setattr(App, "__init__", PyasynqInstrumentor._original)  # noqa: B010 - as above
            PyasynqInstrumentor._original = None
            os.environ.pop(AUTO_VARIABLE, None)
