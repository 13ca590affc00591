"""Records of running servers, and of the tasks they are working on."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyasynq._broker.arguments import chunks, time_arguments
from pyasynq._broker.scripts import SERVER_ANNOUNCE, SERVER_WRITE_STATE
from pyasynq._broker.stored import decode_name
from pyasynq._redis.plan import CommandCall, Plan, Replay, ScriptCall
from pyasynq._wire.constants import SERVER_RECORD_SECONDS
from pyasynq._wire.keys import SERVERS_KEY, WORKERS_KEY, server_key, workers_key
from pyasynq._wire.messages import ServerInfo, UndecodableMessageError, WorkerInfo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq._clock import Instant


class LiveServer(NamedTuple):
    """A running server, and the tasks it is working on."""

    info: ServerInfo
    workers: list[WorkerInfo]


def write_server_state(
    info: ServerInfo,
    workers: Sequence[WorkerInfo],
    *,
    ttl: int = SERVER_RECORD_SECONDS,
    now: Instant | None = None,
) -> Plan[None]:
    """Write the records of a server and its running tasks; they expire after `ttl` seconds unless renewed."""
    server = server_key(info.host, info.pid, info.server_id)
    running = workers_key(info.host, info.pid, info.server_id)
    for index, key in ((SERVERS_KEY, server), (WORKERS_KEY, running)):
        yield ScriptCall(SERVER_ANNOUNCE, (index,), (key, ttl, *time_arguments(now)), Replay.SAFE)
    adds = 0
    for some in chunks(workers, width=2) if workers else [()]:
        tail = [argument for worker in some for argument in (worker.task_id, worker.encode())]
        args = (ttl, adds, info.encode(), *tail)
        yield ScriptCall(SERVER_WRITE_STATE, (server, running), args, Replay.SAFE)
        adds = 1


def clear_server_state(host: str, pid: int, server_id: str) -> Plan[None]:
    """Remove a server's records when it closes."""
    server, running = server_key(host, pid, server_id), workers_key(host, pid, server_id)
    yield CommandCall(("ZREM", SERVERS_KEY, server), SERVERS_KEY, Replay.SAFE)
    yield CommandCall(("ZREM", WORKERS_KEY, running), WORKERS_KEY, Replay.SAFE)
    yield CommandCall(("DEL", server, running), server, Replay.SAFE)


def list_servers(now: Instant | None = None) -> Plan[list[LiveServer]]:
    """Return the servers whose heartbeat has not lapsed, with their running tasks.

    Records that cannot be decoded are skipped.
    """
    servers = []
    for key in (yield from list_record_keys(SERVERS_KEY, now)):
        info = yield from read_server(key)
        if info is not None:
            running = workers_key(info.host, info.pid, info.server_id)
            values = yield CommandCall(("HVALS", running), running, Replay.SAFE)
            servers.append(LiveServer(info, _workers(values)))
    return servers


def list_record_keys(index: str, now: Instant | None) -> Plan[list[str]]:
    """Return the keys of unexpired records in an index; `now=None` asks Redis for the time.

    It only reads, unlike the script `server/list`.
    """
    seconds = now.seconds if now is not None else int((yield CommandCall(("TIME",), index, Replay.SAFE))[0])
    command = ("ZRANGEBYSCORE", index, seconds, "+inf")
    return [decode_name(key) for key in (yield CommandCall(command, index, Replay.SAFE))]


def list_server_keys(now: Instant) -> Plan[list[str]]:
    """Return the keys of the records of servers whose heartbeat has not lapsed."""
    return (yield from list_record_keys(SERVERS_KEY, now))


def count_servers(now: Instant) -> Plan[int]:
    """Return the number of servers whose heartbeat has not lapsed."""
    servers: int = yield CommandCall(("ZCOUNT", SERVERS_KEY, now.seconds, "+inf"), SERVERS_KEY, Replay.SAFE)
    return servers


def read_server(key: str) -> Plan[ServerInfo | None]:
    """Return a server's record; None if it is gone or cannot be decoded."""
    data = yield CommandCall(("GET", key), key, Replay.SAFE)
    try:
        return ServerInfo.decode(data or b"")
    except UndecodableMessageError:
        return None


def _workers(values: Sequence[bytes]) -> list[WorkerInfo]:
    workers = []
    for data in values:
        try:
            workers.append(WorkerInfo.decode(data))
        except UndecodableMessageError:
            continue
    return workers
