"""Plans that describe live servers and their running tasks, and request a server to quiet or stop."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyasynq._broker.server_requests import ask_server
from pyasynq._broker.servers import list_record_keys, read_server
from pyasynq._checks import check_name
from pyasynq._redis.plan import CommandCall, Replay
from pyasynq._wire.engine_text import (
    decode_answer,
    decode_engine,
    decode_engine_texts,
    decode_loop_blocked,
    decode_served_types,
)
from pyasynq._wire.keys import SERVERS_KEY, workers_key
from pyasynq._wire.running_tasks import decode_running_task
from pyasynq.errors import ServerNotFoundError, UndecodableMessageError
from pyasynq.info import RequestStatus, ServerAction, ServerInfo, ServerRequestResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyasynq._clock import Instant
    from pyasynq._redis.plan import Plan
    from pyasynq._wire.messages import ServerInfo as ServerRecord
    from pyasynq.info import WorkerInfo


def find_servers(now: Instant | None, *, payloads: bool = True) -> Plan[list[Plan[ServerInfo | None]]]:
    """Return one plan for each live server; the plan returns its description, or None if it has gone.

    Without `payloads`, the payloads of the running tasks are empty.
    """
    return [_describe(key, payloads=payloads) for key in (yield from list_record_keys(SERVERS_KEY, now))]


def _describe(key: str, *, payloads: bool) -> Plan[ServerInfo | None]:
    record = yield from read_server(key)
    if record is None:
        return None
    running = workers_key(record.host, record.pid, record.server_id)
    values = yield CommandCall(("HVALS", running), running, Replay.SAFE)
    return describe_record(record, tuple(_decode_running(values, payloads=payloads)))


def _decode_running(values: Sequence[bytes], *, payloads: bool) -> Iterator[WorkerInfo]:
    """Yield the running tasks of a server; skip records that cannot be decoded."""
    for data in values:
        try:
            yield decode_running_task(data, payload=payloads)
        except UndecodableMessageError:
            continue


def sort_servers(infos: Iterable[ServerInfo | None], queue: str | None) -> list[ServerInfo]:
    """Sort servers by host, process and id; with `queue`, keep only servers that serve it."""
    found = [info for info in infos if info is not None and (queue is None or queue in info.queues)]
    return sorted(found, key=lambda info: (info.host, info.pid, info.id))


def describe_servers(queue: str | None, *, now: Instant | None) -> Plan[list[ServerInfo]]:
    """Describe the servers whose last record is still valid; with a queue, only the servers that serve it."""
    found = []
    for plan in (yield from find_servers(now)):
        info = yield from plan
        found.append(info)
    return sort_servers(found, queue)


def request_of_server(
    server_id: str, action: ServerAction, *, now: Instant | None
) -> Plan[ServerRequestResult]:
    """Store a request to a live server, and return its state. Nothing is stored for a Go server.

    Raises:
        ServerNotFoundError: when no live server has this id.
    """
    check_name("server_id", server_id)
    record = yield from _find_record(server_id, now)
    if record is None:
        raise ServerNotFoundError(server_id)
    if not record.engine:
        return ServerRequestResult(server_id, action, RequestStatus.NOT_UNDERSTOOD)
    request = yield from ask_server(server_id, action, now=now)
    return ServerRequestResult(server_id, action, RequestStatus.REQUESTED, request.number)


def refresh_request(result: ServerRequestResult, *, now: Instant | None) -> Plan[ServerRequestResult]:
    """Return the current state of a request to a server, such as a request to stop."""
    record = yield from _find_record(result.server_id, now)
    if record is None:
        return replace(result, status=RequestStatus.ENDED)
    answer = decode_answer(record.engine)
    if answer is None or answer.number != result.number:
        return result
    return replace(result, status=RequestStatus.OBEYED if answer.obeyed else RequestStatus.REFUSED)


def is_request_open(result: ServerRequestResult) -> bool:
    """Return whether the state of a request may still change.

    It may if the server has not acknowledged the request, or is still stopping.
    """
    if result.status is RequestStatus.REQUESTED:
        return True
    return result.status is RequestStatus.OBEYED and result.action is ServerAction.STOP


def _find_record(server_id: str, now: Instant | None) -> Plan[ServerRecord | None]:
    for key in (yield from list_record_keys(SERVERS_KEY, now)):
        if key.endswith(f":{server_id}}}"):
            record = yield from read_server(key)
            if record is not None and record.server_id == server_id:
                return record
    return None


def describe_record(record: ServerRecord, running: tuple[WorkerInfo, ...] = ()) -> ServerInfo:
    """Describe a server by its record, with these running tasks."""
    engine, limits = decode_engine(record.engine)
    return ServerInfo(
        id=record.server_id,
        host=record.host,
        pid=record.pid,
        status=record.status,
        concurrency=record.concurrency,
        queues=record.queues,
        strict_priority=record.strict_priority,
        started=record.start_time,
        active_workers=running,
        engine=engine,
        limits=limits,
        types=decode_served_types(record.engine),
        answer=decode_answer(record.engine),
        loop_blocked=decode_loop_blocked(record.engine),
        **decode_engine_texts(record.engine),
    )
