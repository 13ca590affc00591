"""Looking into queues and servers, and changing what waits there."""

from __future__ import annotations

from .bulk import BulkInspector
from .events import EventInspector
from .queues import QueueInspector
from .servers import ServerInspector
from .tasks import TaskInspector

__all__ = ["Inspector"]


class Inspector(QueueInspector, TaskInspector, BulkInspector, ServerInspector, EventInspector):
    """Tells and changes what Redis holds of queues, tasks and servers, those of Go peers included.

    It connects with the first call. The asyncio inspector (`pyasynq.Inspector`) belongs to the event loop and
    the process that use it; the blocking one (`pyasynq.sync.Inspector`) may be shared by threads. Close it,
    or use it as a context manager; one that is never closed gives a `ResourceWarning`.

    Every method raises a `RedisError` when Redis or the way to it fails, `InvalidOptionError` for an argument
    that cannot be, and, where it takes a queue, `QueueNotFoundError` for one that does not exist, unless its
    description says otherwise. One that is cancelled may have taken effect; those that work through many
    tasks end after the call to Redis that is under way.

    Args:
        url: `redis://`, `rediss://`, `unix://` or `embedded://`.
        timeout: seconds that one call may wait for Redis, with reconnecting and sending again.
        clock: tells the present, for what is measured against it.
        client_name: what `CLIENT LIST` shows.
        archive_max_size: how many archived tasks a queue keeps when this inspector archives.
        archive_max_age: older ones are deleted when this inspector archives.

    Raises:
        ConfigurationError: for a URL or a value that cannot work.
    """
