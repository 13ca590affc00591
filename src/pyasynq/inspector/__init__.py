"""The inspector: reads and changes queues, tasks, servers and schedulers."""

from __future__ import annotations

from .bulk import BulkInspector
from .events import EventInspector
from .queues import QueueInspector
from .series import StatisticsInspector
from .servers import ServerInspector
from .tasks import TaskInspector
from .walks import WalkInspector

__all__ = ["Inspector"]


class Inspector(
    QueueInspector,
    TaskInspector,
    WalkInspector,
    BulkInspector,
    ServerInspector,
    EventInspector,
    StatisticsInspector,
):
    """Reads and changes queues, tasks, servers and schedulers in Redis, also those of Go peers.

    The first call connects. The asyncio inspector (`pyasynq.Inspector`) belongs to the event loop and
    the process that use it; the blocking one (`pyasynq.sync.Inspector`) may be shared by threads. Close it,
    or use it as a context manager; an inspector that is never closed gives a `ResourceWarning`.

    Every method raises a `RedisError` when Redis or the connection to it fails, `InvalidOptionError` for an
    invalid argument, and, where it takes a queue, `QueueNotFoundError` for one that does not exist, unless
    its description says otherwise. A cancelled call may have taken effect. A method that works through many
    tasks then ends after its current call to Redis.

    Args:
        url: `redis://`, `rediss://`, `unix://` or `embedded://`.
        timeout: seconds that one call may wait for Redis, including reconnecting and resending.
        clock: source of the current time, for ages and due times.
        client_name: the name in `CLIENT LIST`.
        archive_max_size: how many archived tasks a queue keeps when this inspector archives.
        archive_max_age: maximum age of archived tasks; older ones are deleted when this inspector archives.
        read_from: `"replica"` reads from replicas, of a single server, under Sentinel and in a cluster, and
            refuses to change anything.

    Raises:
        ConfigurationError: for a URL or a value that cannot work.
    """
