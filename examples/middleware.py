"""A tenant that travels with each task in a header, and a lifespan that opens something once in each worker.

Run a worker:   pyasynq worker middleware:app --redis redis://localhost:6379/0
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from pyasynq import App, Task, context

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from pyasynq import TaskInfo

tenant: ContextVar[str] = ContextVar("tenant", default="unknown")


@asynccontextmanager
async def open_greetings(_app: App) -> AsyncGenerator[dict[str, str], None]:
    """Yield greetings by tenant, in place of a pool of database connections."""
    yield {"acme": "Howdy"}


app = App(lifespan=open_greetings)


@app.use_client
async def send_tenant(task: Task, call_next: Callable[[Task], Awaitable[TaskInfo]]) -> TaskInfo:
    """Put the tenant of the enqueueing request into a header."""
    return await call_next(task.with_headers(tenant=tenant.get()))


@app.use
async def restore_tenant(
    task: Task,
    call_next: Callable[[Task], Awaitable[bytes | str | None]],
) -> bytes | str | None:
    """Restore the tenant of the enqueueing request in the handler."""
    token = tenant.set(task.headers.get("tenant", "unknown"))
    try:
        return await call_next(task)
    finally:
        tenant.reset(token)


@app.task("greet", retention=3600)
async def greet(name: str) -> str:
    """Greet somebody in the tenant's way."""
    return f"{context().state[tenant.get()]} {name}"
