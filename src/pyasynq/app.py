"""`App`: typed tasks on top of client and server.

    app = App("redis://localhost:6379/0")

    @app.task("email:deliver", queue="critical", max_retry=5, timeout=30)
    async def deliver(user_id: int, template: str) -> str: ...

    handle = await deliver.enqueue(user_id=42, template="welcome")
"""

from __future__ import annotations

import importlib
import os
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar, cast, overload

from pyasynq import sync
from pyasynq._app.client_middleware import blocking_middleware
from pyasynq._app.declaration import Declaration
from pyasynq._app.routes import not_found_route, route_of
from pyasynq._app.typed_task import CoroutineTask, PlainTask, TaskDecorator, TypedTask
from pyasynq._broker.redis_url import parse_redis_url
from pyasynq.client import Client
from pyasynq.errors import ConfigurationError
from pyasynq.options import DEFAULT_QUEUE, resolve_options
from pyasynq.server import Server
from pyasynq.task import name_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Callable, Coroutine, Iterable, Mapping
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType
    from typing import Self, Unpack

    from pyasynq._app.client_middleware import ClientMiddleware
    from pyasynq._app.routes import Middleware
    from pyasynq._server.routes import Route
    from pyasynq.config import ServerConfig
    from pyasynq.options import EnqueueOptions
    from pyasynq.retry import RetryDelay
    from pyasynq.task import EnqueueResult, Task, TaskInfo

    Lifespan: TypeAlias = Callable[["App"], AbstractAsyncContextManager[Any]]

P = ParamSpec("P")
R = TypeVar("R")
M = TypeVar("M", bound="Middleware")
C = TypeVar("C", bound="ClientMiddleware")

REDIS_URL_VARIABLE = "PYASYNQ_REDIS_URL"
