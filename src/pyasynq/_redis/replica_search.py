"""Search for a replica to read from, sans I/O, by the replies to INFO replication."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyasynq._redis.failures import explain_protocol_failure
from pyasynq._redis.reply_errors import ReplyError
from pyasynq._redis.session import Close, Received, Send

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from pyasynq._redis.addresses import Address
    from pyasynq._redis.plan import Argument
    from pyasynq._redis.session import OpenAnswer
    from pyasynq._redis.url import RedisTarget

ROLE: Final[tuple[Argument, ...]] = ("INFO", "replication")


class EnterFirst(NamedTuple):
    """Step: connect to the target itself (to its primary, under Sentinel). The answer is an `OpenAnswer`."""

    seconds: float


class EnterReplica(NamedTuple):
    """Step: connect to a replica. The answer is an `OpenAnswer`."""

    address: Address
    target: RedisTarget
    seconds: float


def seek_replica(
    target: RedisTarget, seconds: float, preferred: Address | None
) -> Generator[EnterFirst | EnterReplica | Send | Close, Any, tuple[Address | None, OpenAnswer]]:
    """Find a replica to read from, and connect to it.

    A target that is a replica itself is used. Otherwise the replicas of the single server, or of the primary
    that Sentinel names, are tried: first the one used before, then those with the highest replication offset.

    Returns:
        address and error. The address is None if the target itself is the replica, and at an error. The error
        is None if the connection to a replica is open.
    """
    deadline = time.monotonic() + seconds
    refusal: OpenAnswer = yield EnterFirst(seconds)
    if refusal is not None:
        return None, refusal
    facts = yield from _read_role(deadline)
    if not isinstance(facts, dict):
        return None, facts
    if facts.get("role") == "slave":
        return None, None
    yield Close()
    addresses = sorted(_list_replicas(facts), key=lambda address: address != preferred)
    refusal = "it has no replica that is online; read from the primary, or name a replica in the URL"
    for number, address in enumerate(addresses):
        share = (deadline - time.monotonic()) / (len(addresses) - number)
        refusal = yield EnterReplica(address, _replica_target(target, address), share)
        if refusal is None:
            role = yield from _read_role(deadline)
            if isinstance(role, dict) and role.get("role") == "slave":
                return address, None
            refusal = "it is no longer a replica" if isinstance(role, dict) else role
        yield Close()
    return None, refusal


def _read_role(deadline: float) -> Generator[Send, Any, dict[str, str] | OpenAnswer]:
    received: Received = yield Send((ROLE,), deadline - time.monotonic())
    if received.broken is not None:
        return explain_protocol_failure(received.broken)
    [reply] = received.replies
    if isinstance(reply, ReplyError):
        return reply
    return read_fields(reply)


def read_fields(info: bytes) -> dict[str, str]:
    """Return the fields of an INFO reply."""
    lines = (line.partition(":") for line in info.decode("utf-8", "replace").splitlines())
    return {name: value for name, separator, value in lines if separator}


def _list_replicas(facts: dict[str, str]) -> Iterator[Address]:
    """Yield the addresses of the online replicas, the highest replication offset first."""
    found = []
    for name, text in facts.items():
        if name.startswith("slave") and name.removeprefix("slave").isdigit():
            # slave0:ip=10.0.0.5,port=6379,state=online,offset=1024,lag=0
            replica = dict(part.partition("=")[::2] for part in text.split(","))
            port, offset = replica.get("port", ""), replica.get("offset", "")
            if replica.get("state") == "online" and port.isdigit() and int(port):
                found.append((-int(offset) if offset.isdigit() else 0, replica.get("ip", ""), int(port)))
    for _, host, number in sorted(found):
        yield host, number


def _replica_target(target: RedisTarget, address: Address) -> RedisTarget:
    host, port = address
    return replace(
        target,
        host=host,
        port=port,
        path=None,
        sentinels=None,
        must_be_primary=False,
        reads_replica=False,
        found_as=target.address,
    )
