"""The application: Django, and a worker that lives for as long as it is served."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from django.core.asgi import get_asgi_application

from pyasynq.sdk import start_worker, with_worker

if TYPE_CHECKING:
    from pyasynq.sdk import RunningWorker

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "service_django.settings")
django_application = get_asgi_application()


async def start() -> RunningWorker:
    """Start the worker in the event loop of the web server."""
    from service_django.tasks import MIDDLEWARES, TASK_CONF, finish_dataset  # noqa: PLC0415 - they use models

    return await start_worker(
        TASK_CONF,
        middlewares=MIDDLEWARES,
        redis=os.environ.get("PYASYNQ_REDIS_URL", "redis://localhost:6379/0"),
        team="starmap",
        concurrency=int(os.environ.get("WORKER_CONCURRENCY", "100")),
        overdue_limit=float(os.environ.get("WORKER_OVERDUE_LIMIT", "600")),
        on_finished=finish_dataset,
    )


application = with_worker(django_application, start)
