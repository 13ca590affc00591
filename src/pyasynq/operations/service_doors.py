"""Protocol gateways (doors) of the task service, such as for Gearman: reports of its instances."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from pyasynq._broker.operating.instance_reports import DOOR_REPORTS, write_reports

from .report_values import check_kind, read_report_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from pyasynq.operations.operator import Operator

DOOR_STATES: Final = ("open", "closed", "lost")
"""States of a door; `lost` means that its instance stopped reporting before the door closed."""
_LOST_SECONDS: Final = 90
"""Age of a report, in seconds, from which an open door counts as lost; instances report every 30 s."""
_MOST_TEXT: Final = 200
_LONGEST_FUNCTIONS: Final = 12_000
"""Maximum characters of the names of functions in a report."""


@dataclass(frozen=True, slots=True)
class ServiceDoor:
    """A protocol gateway (door) of one instance of the task service.

    Attributes:
        id: id of the door.
        protocol: `gearman`.
        address: host and port on which it listens.
        host: name of the machine.
        state: one of `DOOR_STATES`.
        opened: time at which the door was opened.
        workers: number of connections that can run a function.
        clients: number of connections that cannot run a function.
        running: number of jobs that its workers run.
        functions: by name of a function, the number of connections that can run it.
    """

    id: str
    protocol: str
    address: str
    host: str
    state: str
    opened: datetime
    workers: int = 0
    clients: int = 0
    running: int = 0
    functions: Mapping[str, int] = field(default_factory=dict)


def encode_door(door: ServiceDoor) -> bytes:
    """Return the report on a gateway as JSON of at most 16,000 bytes; leave out functions that do not fit."""
    functions, left = {}, _LONGEST_FUNCTIONS
    for name, number in sorted(door.functions.items()):
        left -= len(json.dumps([name, number]))
        if left < 0:
            break
        functions[name] = number
    content = {
        "id": door.id,
        "protocol": door.protocol,
        "address": door.address[:_MOST_TEXT],
        "host": door.host[:_MOST_TEXT],
        "state": door.state,
        "opened": round(door.opened.timestamp(), 3),
        "workers": door.workers,
        "clients": door.clients,
        "running": door.running,
        "functions": functions,
    }
    return json.dumps(content, separators=(",", ":")).encode()


def decode_door(data: bytes) -> ServiceDoor | None:
    """Decode a report from its JSON; return None for anything else."""
    try:
        content = json.loads(data)
        if content["state"] not in DOOR_STATES:
            return None
        return ServiceDoor(
            **{
                name: check_kind(content[name], str)
                for name in ("id", "protocol", "address", "host", "state")
            },
            opened=read_report_time(content["opened"]),
            **{name: check_kind(content[name], int) for name in ("workers", "clients", "running")},
            functions={
                name: check_kind(one, int) for name, one in check_kind(content["functions"], dict).items()
            },
        )
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def list_doors(reports: Iterable[tuple[int, ServiceDoor]], now: float) -> list[ServiceDoor]:
    """Return gateways, sorted by address and machine.

    Args:
        reports: doors, each with the Unix second at which it was reported.
        now: the present, in Unix seconds.
    """
    doors = [
        replace(one, state="lost") if one.state == "open" and at < now - _LOST_SECONDS else one
        for at, one in reports
    ]
    return sorted(doors, key=lambda one: (one.address, one.host, one.id))


async def report_doors(operator: Operator, instance: str, reports: Sequence[ServiceDoor]) -> int:
    """Store the state of an instance's doors, for 10 minutes.

    This is not a verb of an operator: the service calls it every few seconds, without an audit entry.

    Args:
        operator: operator with which the instance reaches Redis.
        instance: id of the instance; its next report on the same door replaces this one.
        reports: state of each door.

    Returns:
        The number of reports that were not stored, because the table of reports in Redis is full.
    """
    named = [(f"{door.protocol}.{instance}", encode_door(door)) for door in reports]
    return await operator._inspector.run(  # noqa: SLF001 - of this package
        write_reports(DOOR_REPORTS, named, operator._inspector.redis_now())  # noqa: SLF001 - as above
    )
