"""Looking at the servers that run, and at what they are working on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq._broker.servers import LiveServer, list_servers
from pyasynq._wire.engine_text import decode_engine
from pyasynq.info import ServerInfo, WorkerInfo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq._clock import Instant
    from pyasynq._redis.plan import Plan
    from pyasynq._wire.messages import WorkerInfo as WorkerRecord


def describe_servers(queue: str | None, *, now: Instant | None) -> Plan[list[ServerInfo]]:
    """Describe the servers whose last record is still valid, or those of them that serve a queue."""
    records = yield from list_servers(now)
    infos = [_server_info(record) for record in records]
    infos.sort(key=lambda info: (info.host, info.pid, info.id))
    return [info for info in infos if queue is None or queue in info.queues]


def _server_info(record: LiveServer) -> ServerInfo:
    info = record.info
    engine, limits = decode_engine(info.engine)
    return ServerInfo(
        id=info.server_id,
        host=info.host,
        pid=info.pid,
        status=info.status,
        concurrency=info.concurrency,
        queues=info.queues,
        strict_priority=info.strict_priority,
        started=info.start_time,
        active_workers=_workers(record.workers),
        engine=engine,
        limits=limits,
    )


def _workers(records: Sequence[WorkerRecord]) -> tuple[WorkerInfo, ...]:
    return tuple(
        WorkerInfo(
            task_id=record.task_id,
            task_type=record.task_type,
            queue=record.queue,
            payload=record.task_payload,
            started=record.start_time,
            deadline=record.deadline,
        )
        for record in records
    )
