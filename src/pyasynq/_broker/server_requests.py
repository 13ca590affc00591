"""Requests of operators to a server, which it reads with each heartbeat."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq._broker.arguments import time_arguments
from pyasynq._broker.scripts import SERVER_ASK
from pyasynq._redis.plan import CommandCall, Plan, Replay, ScriptCall
from pyasynq._wire.keys import server_request_key
from pyasynq.info import ServerAction

if TYPE_CHECKING:
    from pyasynq._clock import Instant

REQUEST_SECONDS: Final = 60
"""Seconds for which a request is valid: a server that was away for longer ignores it."""

_LONGEST_NUMBER: Final = 32
_ACTIONS: Final = {action.value.encode(): action for action in ServerAction}


class ServerRequest(NamedTuple):
    """A request to a server.

    Attributes:
        action: the requested action.
        number: unique among the requests to one server.
    """

    action: ServerAction
    number: str


def ask_server(server_id: str, action: ServerAction, *, now: Instant | None) -> Plan[ServerRequest]:
    """Store a request to a server, and return it with its number."""
    args = (action.value, REQUEST_SECONDS, *time_arguments(now))
    number = yield ScriptCall(SERVER_ASK, (server_request_key(server_id),), args, Replay.SAFE)
    return ServerRequest(action, number.decode())


def read_request(server_id: str) -> Plan[ServerRequest | None]:
    """Return the request to a server; None if there is none, or if its action is unknown."""
    key = server_request_key(server_id)
    action, number = yield CommandCall(("HMGET", key, "action", "number"), key, Replay.SAFE)
    known = _ACTIONS.get(action or b"")
    if known is None or number is None or len(number) > _LONGEST_NUMBER or not number.isascii():
        return None
    return ServerRequest(known, number.decode())
