"""An application of FastAPI that mounts the dashboard at `/tasks`, as docs/dashboard.md shows it."""

from __future__ import annotations

import os

from fastapi import FastAPI

from pyasynq.web import Everyone, dashboard

app = FastAPI()
app.mount(
    "/tasks",
    dashboard(os.environ["PYASYNQ_REDIS_URL"], auth=Everyone("admin"), trusted_proxies=["127.0.0.1/32"]),
)
