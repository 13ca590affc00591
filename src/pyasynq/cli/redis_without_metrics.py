"""Import of redis-py without its metrics, whose OpenTelemetry SDK would slow a short command by an eighth."""

from __future__ import annotations

import sys
from typing import Any, Final

_SDK: Final = "opentelemetry"


def import_redis_without_metrics() -> None:
    """Import redis-py while OpenTelemetry is hidden from it; do nothing if one of both is imported already.

    redis-py imports the SDK wherever it is installed, and no command of an operator uses redis-py's metrics.
    Afterwards OpenTelemetry can be imported as before.
    """
    modules: dict[str, Any] = sys.modules
    if "redis" in modules or _SDK in modules:
        return
    # Python's documented way to let an import fail: redis-py treats the package as not installed.
    modules[_SDK] = None
    try:
        import redis.asyncio  # noqa: F401, PLC0415 - help and completion of commands need no Redis
    finally:
        del modules[_SDK]
